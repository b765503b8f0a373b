"""Parts of the judge: tolerances, the look at sources, cases, limits of a workload, statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.gate.choosing import judge
from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.block import Evaluate, Tolerance
from perfpipe.pipelines.evaluate.bounds import Bound, bound_of
from perfpipe.pipelines.evaluate.candidates import copied, parameters
from perfpipe.pipelines.evaluate.checking import cause
from perfpipe.pipelines.evaluate.device import pytorch
from perfpipe.pipelines.evaluate.history import attempt_of
from perfpipe.pipelines.evaluate.problem import Case, Problem
from perfpipe.pipelines.evaluate.result import Evidence, Found, Judgement, Score, Status, graded
from perfpipe.pipelines.evaluate.static import look
from perfpipe.pipelines.evaluate.timing import Timing, TooShort, score
from perfpipe.pipelines.evaluate.tolerance import EPSILON, Allowed, allowed, difference
from perfpipe.pipelines.workload import Work, load_workload

FLOAT = st.floats(-1e6, 1e6, width=32)
SPECIAL = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 3e38, -3e38])


@pytest.fixture(scope="module")
def torch(needs_torch: None) -> Any:
    return pytorch()


@given(
    st.lists(st.tuples(FLOAT | SPECIAL, FLOAT | SPECIAL), min_size=1, max_size=12),
    st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0, 1.0),
)  # fmt: skip
def test_a_difference_is_what_each_element_says(
    torch: Any, pairs: list[tuple[float, float]], relative: float, scaled: float, absolute: float
) -> None:
    found = torch.tensor([one for one, _ in pairs], dtype=torch.float32)
    exact = torch.tensor([other for _, other in pairs], dtype=torch.float64)
    made = difference(torch, found, exact, Allowed(relative, scaled, absolute), 1.0)
    largest = torch.finfo(torch.float32).max
    usual = [abs(one) for one in exact.tolist() if math.isfinite(one) and abs(one) < largest]
    scale = max(usual, default=0.0)
    wrong = [
        not _right(one, other, scale, Allowed(relative, scaled, absolute), largest)
        for one, other in zip(found.tolist(), exact.tolist(), strict=True)
    ]
    assert (made.wrong, made.of) == (sum(wrong), len(pairs))
    if made.at is not None:
        assert wrong[made.at[0]]


def _right(found: float, exact: float, scale: float, may: Allowed, largest: float) -> bool:
    if math.isnan(exact):
        return math.isnan(found)
    if math.isnan(found):
        return False
    near = largest * (1 - may.relative - may.scaled)
    if abs(found) >= near and abs(exact) >= near and found * exact > 0:
        return True
    if not math.isfinite(exact):
        return found == exact
    limit = may.relative * abs(exact) + may.scaled * scale + may.absolute
    return abs(found - exact) <= limit


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("terms", [1, 64, 4096])
def test_rounding_and_another_order_of_a_sum_pass(torch: Any, dtype: str, terms: int) -> None:
    random = torch.Generator().manual_seed(terms)
    kind = getattr(torch, dtype)
    a, b = (torch.randn(16, terms, generator=random).to(kind) for _ in range(2))
    exact = a.double() @ b.double().T
    wide = torch.promote_types(kind, torch.float32)
    order = torch.randperm(terms, generator=random)
    found = torch.zeros(16, 16, dtype=wide)
    for part in order.split(48):
        found += a[:, part].to(wide) @ b[:, part].to(wide).T
    made = difference(torch, found.to(kind), exact, allowed(dtype, terms), terms)
    assert made.ok, made


@pytest.mark.parametrize(
    ("dtype", "lower", "terms"),
    [("float32", "bfloat16", 256), ("float32", "float16", 256), ("float64", "float32", 64)],
)
def test_a_product_in_a_lower_type_is_told_by_its_errors(
    torch: Any, dtype: str, lower: str, terms: int
) -> None:
    random = torch.Generator().manual_seed(terms)
    drawn = (torch.randn(64, terms, generator=random, dtype=torch.float64) for _ in range(2))
    a, b = (one.to(getattr(torch, dtype)) for one in drawn)
    rounded = (one.to(getattr(torch, lower)).double() for one in (a, b))
    found = (next(rounded) @ next(rounded).T).to(a.dtype)
    accumulate = "float64" if dtype == "float64" else "float32"
    may = allowed(dtype, terms, accumulate)
    made = difference(torch, found, a.double() @ b.double().T, may, terms)
    assert not made.ok
    assert made.computed_in is not None
    assert EPSILON[made.computed_in] <= 2 * EPSILON[lower]


@pytest.mark.parametrize("bug", ["one term less", "scaled", "shifted", "transposed", "zeros"])
def test_a_bug_is_no_lowered_precision(torch: Any, bug: str) -> None:
    random = torch.Generator().manual_seed(3)
    a, b = (torch.rand(48, 48, generator=random) + 0.5 for _ in range(2))
    exact = a.double() @ b.double()
    found = {
        "one term less": exact - a.double()[:, -1:] * b.double()[-1:],
        "scaled": exact * 1.001,
        "shifted": exact + 0.01,
        "transposed": exact.T,
        "zeros": torch.zeros_like(exact),
    }[bug].float()
    made = difference(torch, found, exact, allowed("float32", 48), 48)
    assert (made.ok, made.computed_in) == (False, None)


def test_integers_must_be_equal_and_stated_tolerances_count(torch: Any) -> None:
    one = torch.tensor([1, 2, 3], dtype=torch.int32)
    assert difference(torch, one, one.double(), allowed("int32", 9), 9).ok
    assert difference(torch, one, one.double() + 1, allowed("int32", 9), 9).wrong == 3
    stated = {"float16": Tolerance(atol=0.5, rtol=0.25)}
    assert allowed("float16", 9, "float32", stated) == Allowed(0.25, 0.0, 0.5)


OFFENCES = {
    "import socket": "network",
    "from urllib.request import urlopen": "network",
    "import multiprocessing as m": "processes",
    "from os import fork": "processes",
    "import pipelines.evaluate": "harness",
    "import importlib\nimportlib.import_module('the_reference')": "reference called",
    "import the_reference": "reference called",
    "import marshal": "unread code",
    "import timeit\ntimeit.timeit('1')": "unread code",
    "import torch as t\nt.cuda.synchronize = None": "timer patched",
    "import time\ntime.perf_counter = lambda: 0": "timer patched",
    "import torch\nsetattr(torch, 'empty', None)": "timer patched",
    "import torch\ndel torch.allclose": "timer patched",
    "from torch import cuda\ncuda.Event.record = print": "timer patched",
    "import sys\nsys.modules['torch'] = None": "timer patched",
    "import os\ngetattr(os, 'fo' + 'rk')": "unread code",
    "exec('1')": "unread code",
    "\uff45val('1')": "unread code",
    "f = (lambda: 0).__globals__": "hidden code",
    "open('/etc/passwd')": "files",
    "from pathlib import Path\nPath('../x')": "files",
}
LET_PASS = [
    "import os\nHERE = os.path.dirname(__file__)\nN = os.cpu_count()",
    "import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\nos.environ.setdefault('MAX_JOBS', '2')",
    "import inspect\nimport importlib\nimport sys\nHERE = sys.modules[__name__]",
    "import subprocess\nimport os\nos.system('true')",
    "class A:\n    def __init__(self, **given):\n        self.__dict__.update(given)",
    "import torch\nTYPE = 'float16'\nDTYPE = getattr(torch, TYPE)",
    "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
    "import torch\nclass M(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.weight = 1\nm = M()\nm.weight = 2",
    "open('table.txt')\nopen('/proc/cpuinfo')",
    "x = {}\nx['a'] = 1\nx.get('a')",
    "import the_helper\nthe_helper.table = 1",
    "def time(x):\n    x.value = 1",
]


@pytest.mark.parametrize("source", OFFENCES, ids=lambda text: text.splitlines()[-1])
def test_the_look_finds_what_no_kernel_needs(tmp_path: Path, source: str) -> None:
    (tmp_path / "kernel.py").write_text(source, encoding="utf-8")
    for name in ("marshal.py", "os.py", "timeit.py", "socket.py"):
        (tmp_path / name).touch()  # a file beside it lifts no ban
    found = look(tmp_path, "the_reference")
    assert found
    assert found[0].kind == OFFENCES[source]
    assert (found[0].file, found[0].line is not None) == ("kernel.py", True)


def test_refused_is_what_is_no_evidence_of_cheating(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("import socket\nimport time\ntime.time = None\n")
    found = graded(look(tmp_path, "the_reference"))
    assert found.status == Status.CHEATING
    assert [one.kind for one in found.evidence] == ["timer patched", "network"]
    (tmp_path / "kernel.py").write_text("import socket\n")
    found = graded(look(tmp_path, "the_reference"))
    assert (found.status, "no network" in str(found)) == (Status.REFUSED, True)


@pytest.mark.parametrize("source", LET_PASS, ids=range(len(LET_PASS)))
def test_the_look_lets_ordinary_code_pass(tmp_path: Path, source: str) -> None:
    (tmp_path / "kernel.py").write_text(source)
    (tmp_path / "the_helper.py").write_text("")
    (tmp_path / "broken.py").write_text("def (")
    assert look(tmp_path, "the_reference") == []


def _problem(**changed: Any) -> Problem:
    block = {
        "reference": "r.py",
        "inputs": {"x": {"shape": ["m", "2*n"]}, "i": {"shape": [], "dtype": "int64", "high": "n"}},
        "outputs": {"y": {"shape": ["m"]}},
        "dtypes": ["float32", "bfloat16"],
        "correctness": [{"m": 2, "n": 3}, {"m": 4, "n": 5}],
        "timing": [{"m": 8, "n": 8}],
        "special": ["nan", "empty"],
        "empty": ["m"],
        **changed,
    }
    path = Path("r.py")
    return Problem("p", Evaluate.model_validate(block), lambda x, i: x[:, 0], path)


def test_cases_are_of_every_type_size_and_kind() -> None:
    cases = _problem().cases(100)
    assert len({case.seed for case in cases}) == len(cases)
    assert [case.label for case in cases if case.special] == [
        f"{dtype} {label}"
        for dtype in ("float32", "bfloat16")
        for label in ("m=2 n=3, nan", "m=4 n=5, nan", "m=0 n=3, empty")
    ]
    assert sum(case.sizes == {"m": 8, "n": 8} for case in cases) == 1
    assert not any(case.sizes["m"] == 8 for case in _problem().cases(100, timed=False))


def test_inputs_are_drawn_by_their_seed(torch: Any) -> None:
    problem, case = _problem(), Case("bfloat16", {"m": 4, "n": 5})
    one, other, third = (problem.drawn(torch, case, seed, "cpu") for seed in (1, 1, 2))
    assert one[0].shape == (4, 10)
    assert (one[0].dtype, one[1].dtype) == (torch.bfloat16, torch.int64)
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[0], third[0])
    assert 0 <= int(one[1]) < 5
    nan = problem.drawn(torch, Case("float32", {"m": 4, "n": 5}, "nan"), 1, "cpu")
    assert int(nan[0].isnan().sum()) == 1


def test_a_reference_that_gives_another_shape_is_the_callers_fault(torch: Any) -> None:
    problem, case = _problem(outputs={"y": {"shape": ["n"]}}), Case("float32", {"m": 4, "n": 5})
    with pytest.raises(InputError, match=r"the reference returns \[\(4,\)\], not \[\(5,\)\]"):
        problem.exact(torch, case, problem.drawn(torch, case, 1, "cpu"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("  inputs: {x: {shap: [n]}}", "w.yaml:6: unknown key 'shap'; did you mean 'shape'?"),
        ("  inputs: {}", "w.yaml:6: evaluate.inputs"),
        ("  inputs: {x: {shape: [n], dtype: float12}}", "w.yaml:6: evaluate.inputs.x.dtype"),
        ("  inputs: {y: {shape: [n]}}", "both an input and an output"),
        ("  inputs: {x: {shape: [n]}}\n  special: [empty]", "names of sizes that may be 0"),
        ("  inputs: {x: {shape: [n]}}\n  timing: [{m: 1}]", "all sizes must have the same names"),
    ],
    ids=["key", "none", "type", "twice", "empty", "sizes"],
)
def test_faults_of_the_block_have_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        f"version: 1\nname: w\ncommand: [x]\nevaluate:\n  reference: r.py\n{line}\n"
        "  outputs: {y: {shape: [n]}}\n  correctness: [{n: 1}]\n"
    )
    with pytest.raises(InputError) as error:
        load_workload(path)
    assert says in str(error.value)


def test_a_candidate_is_copied_without_links_and_within_bounds(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "part").mkdir(parents=True)
    (source / "kernel.py").write_text("1")
    (source / "part" / "x.py").write_text("2")
    (source / "secret").symlink_to("/etc/passwd")
    digest = copied(source, tmp_path / "one")
    names = {path.name for path in (tmp_path / "one" / "files").rglob("*") if path.is_file()}
    assert names == {"kernel.py", "x.py"}
    (source / "params.json").write_text('{"tile": 64}')
    assert copied(source, tmp_path / "two") != digest
    assert parameters(tmp_path / "two") == {"tile": 64}
    for number in range(200):
        (source / f"n{number}.py").touch()
    with pytest.raises(InputError, match="at most 200 files"):
        copied(source, tmp_path / "three")


def test_only_a_correct_candidate_can_have_times() -> None:
    score = Score("c", "b", (1.0,), (2.0,), 2.0, None, None, "unreplicated", 4, "cold")
    made = Judgement("w", "c", Status.CORRECT, "", "d", "CPU", 1, scores=(score,))
    (times,) = attempt_of(made, "c", 3).times
    assert (times.candidate_ms, times.baseline_ms) == ((1.0,), (2.0,))
    with pytest.raises(ValueError, match="only a correct"):
        Judgement("w", "c", Status.CHEATING, "", "d", "CPU", 1, scores=(score,))
    evidence = (Evidence("cached result", "text"),)
    lost = Judgement("w", "c", Status.CHEATING, "why", "d", "CPU", 1, evidence)
    told = attempt_of(lost, "c", 3)
    assert (told.status, told.reason, told.evidence) == (
        "cheating",
        "why",
        ("cached result: text",),
    )


class _Gpu:
    """A GPU as PyTorch tells of it."""

    multi_processor_count = 132

    def __init__(self, name: str) -> None:
        self.cuda, self.name = self, name

    def get_device_name(self, _: str) -> str:
        return self.name

    def get_device_properties(self, _: str) -> _Gpu:
        return self


def test_the_attainable_time_is_of_the_declared_work() -> None:
    case = Case("float16", {"m": 1024, "n": 1024})
    work = Work(bytes="2*m*n*dtype_bytes", flops="5*m*n", dtype="fp16")
    h200 = bound_of(_Gpu("NVIDIA H200"), "cuda:0", work, case)
    assert h200.ms == pytest.approx(4 * 2**20 / 4.8e12 * 1e3, rel=0.01)
    product = bound_of(_Gpu("NVIDIA H200"), "cuda:0", Work(flops="2*m**3", bytes="6*m*m"), case)
    assert product.ms == pytest.approx(2 * 1024**3 / 989e12 * 1e3, rel=0.01)
    for device, gpu, declared, why in (
        ("cpu", "", work, "GPUs only"),
        ("cuda:0", "NVIDIA H200", Work(), "does not declare its work"),
        ("cuda:0", "Unknown 9000", work, "unknown"),
    ):
        found = bound_of(_Gpu(gpu), device, declared, case)
        assert found.ms is None
        assert why in str(found.why)
    with pytest.raises(InputError, match="unknown name 'k'"):
        bound_of(_Gpu("NVIDIA H200"), "cuda:0", Work(bytes="k"), case)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("none.yaml",), "none.yaml"),
        (("plain.yaml",), "no 'evaluate' block"),
        (("w.yaml", "--baseline", "nowhere"), "--baseline nowhere"),
        (("w.yaml", "--workloads", "x.jsonl"), "FlashInfer-Trace"),
        (("lost.yaml",), "no such reference"),
    ],
    ids=["file", "block", "baseline", "workloads", "reference"],
)
@pytest.mark.usefixtures("needs_torch")
def test_what_cannot_be_read_is_one_sentence(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    head = "version: 1\nname: w\ncommand: [x]\n"
    block = (
        "evaluate:\n  reference: r.py\n  inputs: {x: {shape: [n]}}\n"
        "  outputs: {y: {shape: [n]}}\n  correctness: [{n: 1}]\n"
    )
    (tmp_path / "plain.yaml").write_text(head)
    (tmp_path / "w.yaml").write_text(head + block)
    (tmp_path / "lost.yaml").write_text(head + block.replace("r.py", "lost.py"))
    (tmp_path / "r.py").write_text("def reference(x):\n    return x\n")
    (tmp_path / "mine").mkdir()
    assert cli("evaluate", *words, "--candidate", "mine", "--device", "cpu") == 2
    assert says in cli.err
    assert len(cli.err.strip().splitlines()) == 1


class _Arena:
    """Memory that nothing is written to."""

    device, size = "cpu", 1 << 20


def test_what_is_too_short_to_time_gets_no_number(torch: Any) -> None:
    case = Case("float32", {"m": 8, "n": 8})
    timing = Timing(torch, _problem(), _Arena(), case, 1 << 20, 1)  # type: ignore[arg-type]
    assert timing.calls == 64
    assert timing.resolved(6.5, 0.1) == pytest.approx(0.1)
    for ms in (0.14, 0.1, 0.05):
        with pytest.raises(TooShort, match="64 calls take"):
            timing.resolved(ms, 0.1)


def test_a_score_is_by_the_statistics_of_the_gate(torch: Any) -> None:
    case = Case("float32", {"m": 8, "n": 8})
    timing = Timing(torch, _problem(), _Arena(), case, 1 << 20, 1)  # type: ignore[arg-type]
    samples = {"": [1.00, 1.01, 0.99, 1.0], "base": [2.0, 2.01, 1.99, 2.0]}
    made = score(timing, case, "base", samples, Bound(0.5), None)
    change, verdict = judge(samples["base"], samples[""])
    assert (made.verdict, verdict) == ("faster", "improved")
    assert made.speedup == pytest.approx(1 / (1 + change.ratio))
    assert made.low is not None
    assert made.high is not None
    assert made.low < 2 < made.high
    assert made.attainable_pct == pytest.approx(50)
    one = score(timing, case, "base", {"": [1.0], "base": [2.0]}, Bound(None, "why"), None)
    assert (one.verdict, one.low, one.high) == ("unreplicated", None, None)
    assert (one.attainable_pct, one.attainable_why) == (None, "why")
    slow = score(
        timing, case, "base", {"": samples["base"], "base": samples[""]}, Bound(None), None
    )
    assert slow.verdict == "slower"


@pytest.mark.parametrize(
    ("device", "wrong", "status"),
    [
        ("cuda", lambda paced, _: paced, Status.CHEATING),
        ("cuda", lambda paced, call: True, Status.WRONG),
        ("cuda", lambda paced, call: call == 0, Status.WRONG),
        ("cuda", lambda paced, call: False, Status.WRONG),
        ("cpu", lambda paced, _: paced, Status.WRONG),
    ],
    ids=["whenever late", "always", "the next time", "never again", "on a CPU"],
)
def test_only_what_is_wrong_whenever_inputs_are_late_is_another_stream(
    device: str, wrong: Callable[[bool, int], bool], status: Status
) -> None:
    found = Found(Status.WRONG, Evidence("wrong result", "y[0] is 1", case="m=1"))
    calls: list[bool] = []

    def call(*, paced: bool) -> None:
        calls.append(paced)
        if wrong(paced, len(calls) - 1):
            raise found

    told = cause(found, device, call)
    assert told.status == status
    assert told is found or told.evidence[0].kind == "other streams"
