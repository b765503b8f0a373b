"""Reduces a workload for a first look."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe.errors import InputError
from perfpipe.pipelines.workload import Scalar, Workload

#: Sizes, timed iterations and warm-up iterations that are kept.
_SIZES, _REPEATS, _WARMUP = 2, 5, 3

#: Generations, and configurations per generation, of a reduced search.
_GENERATIONS, _POPULATION = 1, 4

#: What ncu collects: the cheapest set.
_NCU = {"set": "basic", "sections": [], "metrics": [], "import_source": False}


def quick(workload: Workload) -> Workload:
    """Return the workload with the first and the middle size, few repeats and cheap sections.

    The largest sizes take most of the time.  Configurations in `include` are skipped.
    """
    sizes = workload.sizes
    kept = list(dict.fromkeys([0, (len(sizes) - 1) // 2]))[:_SIZES] if sizes else []
    changes: dict[str, object] = {
        "sizes": [sizes[at] for at in kept],
        "include": [] if sizes or workload.matrix else workload.include,
        "warmup": min(workload.warmup, _WARMUP),
        "repeats": min(workload.repeats, _REPEATS),
        "launches": 1,
    }
    if workload.tune is not None:
        tune = workload.tune
        changes["tune"] = tune.model_copy(
            update={
                "generations": min(tune.generations, _GENERATIONS),
                "population": min(tune.population, _POPULATION),
                "confirm": 0,
            }
        )
    if workload.collect.ncu is not None:
        ncu = workload.collect.ncu.model_copy(update=_NCU)
        changes["collect"] = workload.collect.model_copy(update={"ncu": ncu})
    return workload.model_copy(update=changes)


def sizes_of(text: str, workload: Workload, where: str) -> list[Scalar]:
    """Return the numbers of --sizes; raises InputError if the workload has no parameter `size`."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--sizes {text}: expected numbers, such as 512,4096") from None
    named = [size if isinstance(size, dict) else {"size": size} for size in workload.sizes]
    known: Sequence[str] = list(
        dict.fromkeys([name for params in named for name in params] + list(workload.matrix))
    )
    if "size" not in known:
        few = ", ".join(known[:4])
        hint = f"; its parameters are {few}: use --set {known[0]}=..." if known else ""
        raise InputError(f"--sizes: {where} has no parameter 'size'{hint}")
    return list(numbers)
