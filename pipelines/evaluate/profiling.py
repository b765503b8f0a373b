"""Profiles a call of the best candidate with ncu, confined as it was judged."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.session import Session
from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.collectors.ncu import profile_options
from perfpipe.pipelines.evaluate.arena import laid_out
from perfpipe.pipelines.evaluate.bounds import CaseWork, work_of
from perfpipe.pipelines.evaluate.candidates import copied
from perfpipe.pipelines.evaluate.load import Loaded
from perfpipe.pipelines.evaluate.problem import Case, Problem
from perfpipe.pipelines.evaluate.reach import hidden, paths
from perfpipe.pipelines.evaluate.result import Judgement, Kernel, Profile
from perfpipe.pipelines.evaluate.worker import inherited
from perfpipe.pipelines.process import run
from perfpipe.pipelines.reading import with_files
from perfpipe.pipelines.tools import explain, find_tool
from perfpipe.pipelines.workload import CollectNcu
from perfpipe.store import Store
from perfpipe.work import Work, add_work

#: Most launches of a call that are profiled, and most kernels that are reported.
_LAUNCHES, _KERNELS = 50, 8

#: How long ncu may take, s.
_NCU_S = 600.0


def best(made: Sequence[Judgement]) -> int | None:
    """Return the correct candidate that is fastest over all cases; the first if none was timed.

    >>> best([]) is None
    True
    """
    correct = [number for number, one in enumerate(made) if one.ok]
    return max(correct, key=lambda number: _speed(made[number]), default=None)


def _speed(made: Judgement) -> float:
    """Return the mean logarithm of its speedups."""
    found = [math.log(score.speedup) for score in made.scores]
    return sum(found) / len(found) if found else -math.inf


def case_of(problem: Problem, made: Judgement) -> Case:
    """Return the case to profile: the one that took longest, else the largest sizes."""
    block = problem.block
    sizes = block.timing or block.correctness
    cases = [Case(block.dtypes[0], own, "", made.seed) for own in sizes]
    took = {score.case: max(score.candidate_ms) for score in made.scores}
    # Without times, the last case, which is usually the largest.
    return max(reversed(cases), key=lambda case: took.get(case.label, 0.0))


def profile(
    torch: Any, judged: Loaded, candidate: Path, case: Case, device: str, store: Store
) -> Profile:
    """Profile a call of a candidate, and put the report into the store; it never raises.

    If the call is a single kernel, the declared work of the case is that of the kernel.
    """
    ncu = find_tool("ncu")
    if ncu is None:
        return Profile(case.label, why="ncu was not found (see perfpipe doctor)")
    try:
        with tempfile.TemporaryDirectory(prefix="perfpipe-profile-") as folder:
            return _profiled(torch, judged, candidate, case, device, store, Path(folder), ncu.path)
    except PerfpipeError as error:
        return Profile(case.label, why=str(error))


def _profiled(
    torch: Any,
    judged: Loaded,
    candidate: Path,
    case: Case,
    device: str,
    store: Store,
    folder: Path,
    ncu: str,
) -> Profile:
    home, report = folder / "candidate", folder / "candidate.ncu-rep"
    copied(candidate, home)
    asked = _asked(torch, judged.problem, case, device, home)
    spec = folder / "asked.json"
    spec.write_text(json.dumps(asked), encoding="utf-8")
    options = CollectNcu(set="detailed", launch_count=_LAUNCHES, capture_range="cudaProfilerApi")
    begin = "import sys; sys.path.insert(0, sys.argv[1])\n"
    begin += "from perfpipe.pipelines.evaluate.profiled import main; main()"
    words = [
        *("env", "-i", *(f"{name}={value}" for name, value in _environment(home, device).items())),
        *(ncu, *profile_options(options, alone=True), f"--export={report}"),
        *(sys.executable, "-I", "-c", begin, str(Path(__file__).parents[3]), str(spec)),
    ]
    done = run(words, timeout=_NCU_S)
    refused = _refused(done.stdout)
    said = f"{done.stdout}\n{done.stderr}"
    if not report.is_file():
        late = f"ncu took longer than {_NCU_S:g} s" if done.timed_out else ""
        why = late or explain(said) or f"ncu did not write a report: {done.complaint()}"
        return Profile(case.label, isolation=refused, why=why)
    (name,) = with_files(store, [str(report)])
    _declare(store, name, work_of(judged.work, case))
    kernels = _kernels(store, name)
    none = None if kernels else "the call did not launch a kernel that ncu could profile"
    return Profile(case.label, name, kernels, refused, none)


def _asked(torch: Any, problem: Problem, case: Case, device: str, home: Path) -> dict[str, Any]:
    """Return the request to the process; the inputs are written next to the candidate."""
    block, limits = problem.block, problem.block.limits
    slot = laid_out(problem.inputs(case), problem.outputs(case), 0)
    inputs = home / "inputs.pt"
    drawn = problem.drawn(torch, case, case.seed, device)
    torch.save([one.cpu() if isinstance(one, torch.Tensor) else one for one in drawn], inputs)
    return {
        "module": block.module, "entry": block.entry, "style": block.style,
        "init": problem.init, "seed": problem.init_seed,
        "directory": str(home / "files"), "device": device, "bytes": -(-slot.end // 4096) * 4096,
        "threads": 1, "calls": [slot.views()], "inputs": str(inputs),
        "libraries": [str(Path(torch.__file__).parents[1])],
        **paths(home, device, hidden(problem.path)),
        "limits": {
            # ncu takes processor time in the same process, and writes files of its own.
            "file_bytes": max(limits.file_mb << 20, 1 << 30), "cpu_s": int(_NCU_S),
            "memory_bytes": limits.memory_mb << 20,
        },
    }  # fmt: skip


def _environment(home: Path, device: str) -> dict[str, str]:
    """Return the environment: ncu's lock lies in TMPDIR, where the candidate may write."""
    found = inherited()
    found |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    if device == "cpu":
        found |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    return found


def _refused(output: str) -> dict[str, bool]:
    """Return the restrictions of the process, from the first line that it printed."""
    for line in output.splitlines():
        if line.startswith('{"refused": '):
            found: dict[str, bool] = json.loads(line)["refused"]
            return found
    return {}


def _declare(store: Store, report: str, work: CaseWork) -> None:
    """Declare the work of the only kernel of a report; several share it in unknown parts."""
    if work.flops is None and work.bytes is None:
        return
    if store.manifest(report).tables["ncu_launches"].rows == 1:
        add_work(store, Work(report, None, None, work.flops, work.bytes, work.dtype))


def _kernels(store: Store, report: str) -> tuple[Kernel, ...]:
    """Return the kernels of a report, longest first."""
    names = ", ".join(item.name for item in fields(Kernel))
    sql = f"SELECT {names} FROM kernel_classes ORDER BY time_ns DESC NULLS LAST LIMIT {_KERNELS}"
    with Session.open(store, [report], use=("kernel_classes",)) as session:
        return tuple(Kernel(*row) for row in rows_of(session.con, sql))
    raise AssertionError("unreachable")
