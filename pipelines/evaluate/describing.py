"""A problem in a form that can be read: as data for JSON, and as Markdown, for people and agents.

It states everything that a candidate is judged by except the inputs, which are drawn anew.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any

from perfpipe.pipelines.evaluate.arena import laid_out
from perfpipe.pipelines.evaluate.block import FLOATS, Input
from perfpipe.pipelines.evaluate.bounds import bound_of, work_of
from perfpipe.pipelines.evaluate.device import device_name
from perfpipe.pipelines.evaluate.load import Loaded
from perfpipe.pipelines.evaluate.problem import Case, Problem
from perfpipe.pipelines.evaluate.tolerance import allowed
from perfpipe.pipelines.workload import Work

#: Measured times of baselines, ms, by name of the baseline and label of the case.
Times = Mapping[tuple[str, str], float]

_ATTAINABLE = (
    "the larger of declared FLOPs / nominal dense peak and declared bytes / nominal DRAM "
    "bandwidth; it assumes full overlap, and that no byte is moved twice"
)

_LAYOUTS = {
    "timed": "contiguous inputs and outputs",
    "noncontiguous": "inputs with gaps between rows, an offset, or the last two dimensions "
    "swapped; outputs stay contiguous",
}

_TOLERANCE = "|found - exact| <= relative * |exact| + scaled * max|exact| + absolute"


def problem_data(
    torch: Any,
    given: Loaded,
    device: str,
    *,
    times: Times | None = None,
    isolation: Mapping[str, bool] | None = None,
) -> dict[str, Any]:
    """Return a problem for JSON: entry point, signature, cases, tolerances, limits, baselines.

    `times` are known times of its baselines.  `attainable_ms` of a timed case is None with the
    reason in `attainable_why`.  Raises InputError for a formula that names no size.
    """
    problem, block = given.problem, given.problem.block
    timed = [Case(block.dtypes[0], sizes) for sizes in block.timing]
    cases = [Case(dtype, sizes) for dtype in block.dtypes for sizes in block.correctness]
    made: dict[str, Any] = {
        "workload": problem.name,
        "module": block.module,
        "entry": block.entry,
        "style": block.style,
        "signature": signature(problem),
        "inputs": [_input(name, one) for name, one in block.inputs.items()],
        "outputs": [
            {"name": name, "shape": one.shape, "dtype": one.dtype or "that of the case"}
            for name, one in block.outputs.items()
        ],
        "dtypes": [*block.dtypes],
        "accumulate": block.accumulate,
        "layouts": {
            name: text
            for name, text in _LAYOUTS.items()
            if name == "timed" or name in block.special
        },
        "checked": [_case(problem, case) for case in cases],
        "special": [*block.special],
        "seeds": block.seeds,
        "tolerance": _TOLERANCE,
        "timed": [_timed(torch, problem, given.work, case, device) for case in timed],
        "attainable_assumes": _ATTAINABLE,
        "device": device_name(torch, device),
        "limits": block.limits.model_dump(),
        "forbidden": sorted(problem.forbidden),
        "baselines": [
            {
                "name": name,
                "times_ms": {
                    case.label: (times or {}).get((name, case.label)) for case in timed
                },
            }
            for name in given.baselines
        ],
        "reference": reference_source(problem),
        "skeleton": skeleton(problem),
    }  # fmt: skip
    if isolation is not None:
        made["isolation"] = dict(isolation)
    return made


def signature(problem: Problem) -> str:
    """Return the call that a candidate must support: run(x, y)."""
    block = problem.block
    names = [*block.inputs, *(block.outputs if block.style == "destination" else ())]
    return f"{block.entry}({', '.join(names)})"


def reference_source(problem: Problem) -> str | None:
    """Return the source of the reference, None if the workload hides it or it cannot be read."""
    if not problem.block.show_reference:
        return None
    try:
        text = problem.path.read_text(encoding="utf-8")
        return str(json.loads(text)["reference"]) if problem.path.suffix == ".json" else text
    except (OSError, ValueError, KeyError, TypeError):
        return None


def skeleton(problem: Problem) -> str:
    """Return a kernel.py that runs.

    It computes what the reference does, in float64, if the reference is shown and needs no
    forbidden operator; else it only fills the outputs.
    """
    block = problem.block
    source = None if problem.forbidden else reference_source(problem)
    if block.entry == "ModelNew":  # a class, as KernelBench defines it
        if source is not None:
            return f"{source.rstrip()}\n\n\nclass ModelNew(Model):\n    pass\n"
        return (
            "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
            "    def forward(self, *given):\n        raise NotImplementedError\n"
        )
    own = [*block.inputs]
    if source is not None and _is_plain(source, block.function):
        call = f"{block.function}({', '.join(_widened(problem))})"
        return f"{source.rstrip()}\n\n\n{_function(problem, own, call)}"
    return f"import torch\n\n\n{_function(problem, own, None)}"


def _is_plain(source: str, function: str) -> bool:
    """Return whether a source defines a function that does not depend on other files."""
    try:
        tree = ast.parse(source)
    except (ValueError, SyntaxError):
        return False
    return any(isinstance(one, ast.FunctionDef) and one.name == function for one in tree.body)


def _widened(problem: Problem) -> Iterator[str]:
    """Yield the arguments of the reference, as the judge passes them."""
    for name, one in problem.block.inputs.items():
        dtypes = {one.dtype} if one.dtype else {*problem.block.dtypes}
        wide = problem.widens and one.scalar is None and dtypes <= {*FLOATS}
        yield f"{name}.double()" if wide else name


def _function(problem: Problem, inputs: list[str], call: str | None) -> str:
    """Return the source of the entry point; `call` computes the outputs."""
    block, outputs = problem.block, [*problem.block.outputs]
    head = f"def {signature(problem)}:\n"
    if block.style == "return":
        if call is not None:
            return f"{head}    return {call}\n"
        return f"{head}    raise NotImplementedError\n"
    if call is None:
        return head + "".join(f"    {name}.zero_()  # replace this\n" for name in outputs)
    if len(outputs) == 1:
        return f"{head}    {outputs[0]}.copy_({call})\n"
    lines = [f"    found = {call}\n"]
    lines += [f"    {name}.copy_(found[{number}])\n" for number, name in enumerate(outputs)]
    return head + "".join(lines)


def _input(name: str, one: Input) -> dict[str, Any]:
    if one.scalar is not None:
        return {"name": name, "number": one.scalar}
    made: dict[str, Any] = {
        "name": name,
        "shape": one.shape,
        "dtype": one.dtype or "that of the case",
        "values": one.values,
    }
    if one.values == "integers":
        made |= {"low": one.low, "high": one.high}
    return made


def _case(problem: Problem, case: Case) -> dict[str, Any]:
    """Return a case with its shapes and tolerance."""
    block, reduction = problem.block, problem.reduction(case)
    slot = laid_out(problem.inputs(case), problem.outputs(case), 0)
    inputs = zip(block.inputs, slot.inputs, strict=True)
    outputs = [*zip(block.outputs, slot.outputs, strict=True)]
    return {
        "case": case.label,
        "dtype": case.dtype,
        "sizes": dict(case.sizes),
        "tensors": {
            name: {"dtype": one.made.dtype, "shape": [*one.made.shape], "strides": [*one.stride]}
            for name, one in (*inputs, *outputs)
            if one.made.number is None
        },
        "tolerance": {
            name: vars(allowed(one.made.dtype, reduction, block.accumulate, block.tolerance))
            for name, one in outputs
        },
    }


def _timed(torch: Any, problem: Problem, work: Work, case: Case, device: str) -> dict[str, Any]:
    bound, own = bound_of(torch, device, work, case), work_of(work, case)
    return {
        **_case(problem, case),
        "flops": own.flops,
        "bytes": own.bytes,
        "attainable_ms": bound.ms,
        "attainable_why": bound.why,
    }


def problem_text(data: Mapping[str, Any]) -> str:
    """Return a problem, as `problem_data` describes it, as Markdown."""
    return "\n".join(_lines(data)) + "\n"


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {data['workload']}"
    yield ""
    given = "writes the outputs" if data["style"] == "destination" else "returns the outputs"
    yield f"`{data['module']}` defines `{data['signature']}`, which {given}."
    yield f"It runs on: {data['device']}."
    yield ""
    yield "| tensor | shape | type | values |"
    yield "| --- | --- | --- | --- |"
    for one in data["inputs"]:
        yield _row(one, "input")
    for one in data["outputs"]:
        yield _row(one, "output")
    yield ""
    yield f"Types: {', '.join(data['dtypes'])}; sums in {data['accumulate']} or more precise."
    yield f"Layouts when timed: {data['layouts']['timed']}."
    if "noncontiguous" in data["layouts"]:
        yield f"Also checked: {data['layouts']['noncontiguous']}."
    if other := [one for one in data["special"] if one != "noncontiguous"]:
        yield f"Other inputs that are checked: {', '.join(other)}."
    yield ""
    yield "## Cases"
    yield ""
    sizes = dict.fromkeys(_sizes(one["sizes"]) for one in data["checked"])
    yield f"Checked, each with {data['seeds']} seeds: {'; '.join(sizes) or 'one size'}."
    yield ""
    yield from _times(data)
    yield ""
    yield f"Tolerance: `{data['tolerance']}`"
    yield ""
    for one in data["timed"] or data["checked"][-1:]:
        for name, own in one["tolerance"].items():
            parts = ", ".join(f"{key} {value:.3g}" for key, value in own.items())
            yield f"- {name}, {one['case']}: {parts}"
    yield ""
    yield "## Rules"
    yield ""
    limits = data["limits"]
    yield (
        f"- Limits: {limits['seconds']:g} s for loading and for each call, "
        f"{limits['memory_mb']} MiB of host memory, {limits['processes']} processes, files of "
        f"{limits['file_mb']} MiB."
    )
    if data["forbidden"]:
        yield f"- Operators that a candidate must not call: {', '.join(data['forbidden'])}."
    yield "- Only the candidate's own directory and the libraries can be read; no network."
    yield "- Only correct candidates are timed. Inputs are new in every call."
    if data["reference"] is not None:
        yield from ("", "## Reference", "", *_code(data["reference"]))
    yield from ("", f"## A `{data['module']}` that runs", "", *_code(data["skeleton"]))


def _row(one: Mapping[str, Any], kind: str) -> str:
    if "number" in one:
        return f"| {one['name']} ({kind}) | | number | {one['number']} |"
    values = one.get("values", "")
    if "low" in one:
        values = f"integers from {one['low']} to {one['high']} - 1"
    shape = ", ".join(map(str, one["shape"]))
    return f"| {one['name']} ({kind}) | [{shape}] | {one['dtype']} | {values} |"


def _times(data: Mapping[str, Any]) -> Iterator[str]:
    names = [one["name"] for one in data["baselines"]]
    if not data["timed"]:
        yield "No case is timed."
        return
    yield f"| timed case | attainable | {' | '.join(names)}{' |' if names else ''}"
    yield "| --- |" + " --- |" * (1 + len(names))
    for one in data["timed"]:
        own = one["attainable_ms"]
        cells = [f"{own:.4g} ms" if own is not None else f"unknown: {one['attainable_why']}"]
        for baseline in data["baselines"]:
            ms = baseline["times_ms"].get(one["case"])
            cells.append("not measured" if ms is None else f"{ms:.4g} ms")
        yield f"| {one['case']} | {' | '.join(cells)} |"
    yield ""
    yield f"Attainable: {data['attainable_assumes']}."


def _sizes(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def _code(text: str) -> Iterator[str]:
    # A fence longer than any in the text.
    fence = "`" * max(3, 1 + max((len(run) for run in _ticks(text)), default=0))
    yield f"{fence}python"
    yield text.rstrip()
    yield fence


def _ticks(text: str) -> Iterator[str]:
    for line in text.splitlines():
        own = line.lstrip()
        if own.startswith("```"):
            yield own[: len(own) - len(own.lstrip("`"))]
