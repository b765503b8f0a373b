"""Problems of GPU MODE: task.yml with tests and benchmarks, and reference.py beside it.

reference.py has generate_input, which draws the data of a test by its sizes and seed, and
check_implementation, which says whether an output is right, in tolerances of the author's.  Both
run in the judge's process, as a reference does.  A candidate is a file with custom_kernel(data), or
a directory with submission.py.  See https://github.com/gpu-mode/reference-kernels.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.block import BYTES, FLOATS, Evaluate
from perfpipe.pipelines.evaluate.drawing import Buffers, on_cpu, seeded, shapes_of
from perfpipe.pipelines.evaluate.flashinfer import ENTRY, written
from perfpipe.pipelines.evaluate.problem import Case, Made, Problem, module_of
from perfpipe.pipelines.evaluate.structure import data_of, parts_of, tree_of, wrapper

#: Files of a task that are not for candidates, and the name of a candidate's own file.
_OURS, SUBMISSION = ("eval.py", "reference.py"), "submission.py"

_NEEDED = ("generate_input", "check_implementation")

#: Seeds are below this: some problems use them as values.
_SEEDS = 65521

#: Time limit of a test without one, s, and characters of a reason that are kept.
_SECONDS, _REASON = 180.0, 200


def is_task(path: Path) -> bool:
    """Return whether a YAML file is a task of GPU MODE."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(found, dict) and {"files", "tests"} <= found.keys()


def problem_of_task(torch: Any, path: Path, device: str, into: Path) -> Problem:
    """Return the problem of a task; raises InputError for one that cannot be judged here."""
    found = {"benchmarks": (), **yaml.safe_load(path.read_text(encoding="utf-8"))}
    if found.get("lang", "py") != "py":
        raise InputError(f"{path}: lang: only py is supported, not {found['lang']}")
    if found.get("multi_gpu"):
        raise InputError(f"{path}: multi_gpu: problems of several GPUs are not supported")
    files = _files(path, found["files"])
    module = _reference(files, path, into / "task")
    if missing := [name for name in _NEEDED if not callable(getattr(module, name, None))]:
        raise InputError(f"{path}: reference.py does not define {', '.join(missing)}")
    task = _Task(torch, module, path, device)
    # Seeds are the judge's.
    tests, benchmarks = (
        [{name: value for name, value in one.items() if name != "seed"} for one in found[key] or ()]
        for key in ("tests", "benchmarks")
    )
    if not tests:
        raise InputError(f"{path}: tests: there are none")
    inputs, outputs = task.made(Case("", tests[0]))
    dtype = next((made.dtype for made in inputs if made.dtype in FLOATS), "float32")
    block = Evaluate.model_validate(
        {
            "reference": "reference.py", "module": ENTRY, "dtypes": [dtype], "seeds": 1,
            "inputs": {f"input_{n}": {} for n in range(len(inputs))},
            "outputs": {f"output_{n}": {"shape": []} for n in range(len(outputs))},
            "correctness": [{}], "special": [],
            "limits": {"seconds": float(found.get("test_timeout") or _SECONDS)},
        }
    )  # fmt: skip
    # Sizes of tests may be words, and need not have the same names.
    block = block.model_copy(update={"correctness": tests, "timing": benchmarks})
    given = {name: text for name, text in files.items() if name not in _OURS}
    return Problem(
        path.resolve().parent.name, block, task.referred, into / "task" / "reference.py",
        make=task.drawn, made=task.made, check=task.check, twins=False,
        given={**given, ENTRY: task.wrapper(tests[0])},
    )  # fmt: skip


def candidate_of(path: Path, problem: Problem, into: Path) -> Path:
    """Write a candidate, a file or a directory, beside what the task gives; return the directory.

    Raises InputError if it has no submission.py.
    """
    own = {SUBMISSION: path} if path.is_file() else {
        one.relative_to(path).as_posix(): one for one in path.rglob("*.*") if one.is_file()
    }  # fmt: skip
    if SUBMISSION not in own:
        raise InputError(f"{path}: no such candidate: expected a file, or {SUBMISSION} in it")
    at = written(problem.given, into / path.stem, path)
    for name, source in own.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(source.read_bytes())
    return at


def baseline(problem: Problem, into: Path) -> dict[str, Path]:
    """Write the author's ref_kernel as a candidate; return it by name, or nothing without one."""
    text = problem.path.read_text(encoding="utf-8")
    if "def ref_kernel(" not in text:
        return {}
    own = {"reference.py": text, SUBMISSION: "from reference import ref_kernel as custom_kernel\n"}
    return {"reference": written({**problem.given, **own}, into / "reference", problem.path)}


def _files(path: Path, listed: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the texts of the files of a task, by name, without the candidate's."""
    found = {}
    for one in listed:
        if one["source"].startswith("@"):
            continue
        at = path.resolve().parent / one["source"]
        try:
            found[one["name"]] = at.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: files: cannot read {one['source']}: {error}") from error
    if "reference.py" not in found:
        raise InputError(f"{path}: files: there is no reference.py")
    return found


def _reference(files: Mapping[str, str], path: Path, into: Path) -> Any:
    """Return reference.py as a module, with the modules that it finds beside it."""
    written(files, into, path)
    names = [Path(name).stem for name in files]
    held = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(into))
    try:
        return module_of(into / "reference.py", f"{path}: reference.py")
    finally:
        sys.path.remove(str(into))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(held)


@dataclass(frozen=True)
class _Look:
    """The tree of the data, that of the results, and their tensors; `results` counts these.

    `kept` are the numbers of the parts of the data that are inputs.  Further outputs are empty
    tensors among the data that no result has the shape of.
    """

    data: Any
    found: Any
    inputs: list[Made]
    kept: list[int]
    outputs: list[Made]
    results: int


class _Task:
    """The functions of a task, on the judge's device."""

    def __init__(self, torch: Any, module: Any, path: Path, device: str) -> None:
        self._torch, self._module, self._path, self._device = torch, module, path, device
        self._known: dict[str, _Look] = {}

    def made(self, case: Case) -> tuple[list[Made], list[Made]]:
        """Return type and shape of inputs and outputs; raises InputError for an unknown type."""
        look = self._looked(case.sizes)
        return look.inputs, look.outputs

    def drawn(self, torch: Any, case: Case, seed: int, device: str) -> list[Any]:
        """Return the inputs of a case."""
        parts = parts_of(self._generated(case.sizes, seed))
        return [parts[number] for number in self._looked(case.sizes).kept]

    def referred(self, *_: Any) -> Any:
        """Raise InputError: results are checked by the author's function."""
        raise InputError(f"{self._path}: has no exact results")

    def check(
        self, torch: Any, case: Case, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> str | None:
        """Return why outputs are wrong, by the author's check; None if they are right."""
        look = self._looked(case.sizes)
        given = data_of(look.data, inputs, [torch.empty_like(one) for one in outputs])
        received = data_of(look.found, [], outputs)
        try:
            with self._device_of(), torch.no_grad():
                found = self._module.check_implementation(given, received)
        except Exception as error:
            raise InputError(
                f"{self._path}: check_implementation: {type(error).__name__}: {error}"
            ) from error
        # Older tasks return only the reason.
        right, why = found if isinstance(found, tuple) else (not found, found)
        return None if right else " ".join(str(why).split())[:_REASON] or "wrong result"

    def wrapper(self, sizes: Mapping[str, Any]) -> str:
        """Return the module that gives the data of a call to custom_kernel."""
        look = self._looked(sizes)
        return wrapper(look.data, len(look.inputs), look.results)

    def _generated(self, sizes: Mapping[str, Any], seed: int) -> Any:
        given = {**sizes}
        if "seed" in inspect.signature(self._module.generate_input).parameters:
            given["seed"] = seed % _SEEDS
        try:
            with self._device_of(), seeded(self._torch, seed, self._device):
                return self._module.generate_input(**given)
        except Exception as error:
            raise InputError(
                f"{self._path}: generate_input: {type(error).__name__}: {error}"
            ) from error

    def _device_of(self) -> AbstractContextManager[None]:
        """Return a context in which the author's cuda is the judge's device."""
        return on_cpu(self._torch) if self._device == "cpu" else nullcontext()

    def _looked(self, sizes: Mapping[str, Any]) -> _Look:
        key = repr(sorted(sizes.items()))
        if key not in self._known:
            self._known[key] = look = self._look(sizes)
            if any(one.data != look.data for one in self._known.values()):
                raise InputError(f"{self._path}: data of different tests have different parts")
        return self._known[key]

    def _look(self, sizes: Mapping[str, Any]) -> _Look:
        """Return what the data of a test are.

        Empty tensors are for results: the place of the first result of the shape, if there is one.
        """
        torch = self._torch
        buffers = Buffers(torch)

        def draw(_: str) -> Any:
            with buffers.watched():
                return self._generated(sizes, 0)

        data, results = shapes_of(torch, draw, self._referred, self._device, self._path)
        outputs = [self._made(one) for one in parts_of(results)]
        count = len(outputs)
        inputs: list[Made] = []
        free, places = [*range(count)], []
        for part in parts_of(data):
            made = self._made(part)
            if not (isinstance(part, torch.Tensor) and part in buffers):
                places.append(("input", len(inputs)))
                inputs.append(made)
                continue
            alike = [number for number in free if outputs[number].shape == made.shape]
            if alike:
                free.remove(alike[0])
                outputs[alike[0]] = made
            else:
                outputs.append(made)
            places.append(("output", alike[0] if alike else len(outputs) - 1))
        found = tree_of(results, [("output", number) for number in range(count)])
        kept = [number for number, (kind, _) in enumerate(places) if kind == "input"]
        return _Look(tree_of(data, places), found, inputs, kept, outputs, count)

    def _referred(self, found: Any, _: str) -> Any:
        """Return what ref_kernel returns: the shape of results."""
        reference: Callable[[Any], Any] | None = getattr(self._module, "ref_kernel", None)
        if reference is None:
            raise InputError(f"{self._path}: reference.py does not define ref_kernel")
        with self._device_of():
            return reference(found)

    def _made(self, part: Any) -> Made:
        if isinstance(part, self._torch.Tensor):
            dtype = str(part.dtype).removeprefix("torch.")
            if dtype not in BYTES:
                raise InputError(f"{self._path}: type {dtype} is not supported")
            return Made(dtype, tuple(part.shape))
        if isinstance(part, (bool, int, float, str)):
            return Made("float32", (), part)
        raise InputError(
            f"{self._path}: generate_input returns a {type(part).__name__}: only tensors, numbers, "
            "strings, and tuples, lists and dictionaries of them are supported"
        )
