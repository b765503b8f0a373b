"""The Python interface: functions are profiled in launches, and results are data frames and plots."""

from __future__ import annotations

import ast
import math
import os
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, Cli

import perfpipe
from perfpipe.errors import InputError, TaskFailed
from perfpipe.functions import value_of
from perfpipe.pipelines.api.results import Results

DOC = (ROOT / "docs" / "python.md").read_text()
EXAMPLE = ROOT / "docs" / "examples" / "gemm_sweep.py"
RECORDED = yaml.safe_load((ROOT / "workloads/recordings/gemm-h200/recording.yaml").read_text())

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Return what runs a script, in a directory with the workloads."""
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")

    def run(text: str, *words: str, name: str = "bench.py", **env: str) -> Any:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return subprocess.run(
            [sys.executable, *(words or (name,))], cwd=tmp_path, capture_output=True, text=True,
            timeout=240, env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Recorded configurations of a matrix product."""
    return perfpipe.profile(
        str(ROOT / "workloads/gemm.yaml"),
        {"size": [512, 8192]},
        collector="replay",
        store=tmp_path_factory.mktemp("python") / "store",
    )


def test_importing_it_loads_the_standard_library_only() -> None:
    code = "import sys, perfpipe; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {*done.stdout.split()} <= sys.stdlib_module_names | {"perfpipe", "__main__"}


@pytest.mark.parametrize(
    "name",
    [
        *("perfpipe/__init__.py", "perfpipe/driver.py", "perfpipe/functions.py"),
        *("perfpipe/windows.py", "workloads/harness.py"),
    ],
)
def test_what_a_launch_loads_is_for_older_pythons(name: str) -> None:
    """Types of collections.abc, which older versions cannot subscript, are for type checkers."""
    tree = ast.parse((ROOT / name).read_text(), feature_version=(3, 8))
    known = (sys.stdlib_module_names - {"collections"}) | {"perfpipe"}
    known |= {"torch"} if "harness" in name else set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [own.name for own in node.names]
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            assert {own.partition(".")[0] for own in names} <= known


SCRIPT = """
import hashlib
import perfpipe

print("ran", file=open("ran", "a"))

@perfpipe.profiled({"n": [5, 50], "twice": [False, True]}, repeats=3, work={"bytes": "n*1024"})
def hashing(n, twice, name="md5"):
    data = b"x" * 1024
    assert type(n) is int and type(twice) is bool

    def step():
        for _ in range(2 * n if twice else n):
            hashlib.new(name, data).digest()

    return step

result = hashing.profile(collector="timing")
frame = result.frame()
print(frame[["n", "twice", "status", "iterations"]].to_csv(index=False))
print((frame["effective_bytes_per_s"] == frame["n"] * 1024 / (frame["median_ms"] / 1e3)).all())
result.plot("n", "effective_bytes_per_s", path="plot.svg")
"""


def test_a_function_of_a_script_without_a_guard(script: Script, tmp_path: Path) -> None:
    done = script(SCRIPT)
    assert done.returncode == 0, done.stderr
    rows = "n,twice,status,iterations\n5,False,done,3\n5,True,done,3\n50,False,done,3\n50,True,done,3\n"
    assert done.stdout == f"{rows}\nTrue\n"
    # The script and its four launches.
    assert (tmp_path / "ran").read_text() == 5 * "ran\n"
    assert "<svg" in (tmp_path / "plot.svg").read_text()


BARE = f"""
import importlib.util, sys
if __name__ == "__main__":
    sys.path.insert(0, {str(ROOT)!r})
import perfpipe

def looking():
    assert "bare" in sys.prefix and perfpipe.__file__.startswith({str(ROOT)!r})
    assert importlib.util.find_spec("duckdb") is None
    return lambda: None

if __name__ == "__main__":
    print(*perfpipe.profile(looking, collector="timing").frame()["status"])
"""


def test_a_launch_needs_nothing_of_perfpipe(script: Script, tmp_path: Path) -> None:
    """The interpreter of the function has the standard library only."""
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    done = script(BARE, PERFPIPE_PYTHON=python, PYTHONPATH="")
    assert done.stdout == "done\n", done.stderr


PACKAGE = """
from . import parts
import perfpipe

def step(n):
    return lambda: parts.work(n)

if __name__ == "__main__":
    print(*perfpipe.profile(step, {"n": [3]}, collector="timing").frame()["status"])
"""


CALLER = """
import perfpipe, pkg.bench
print(*perfpipe.profile(pkg.bench.step, {"n": [3]}, collector="timing").frame()["status"])
"""


def test_a_function_of_a_module_in_a_package(script: Script, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "parts.py").write_text("def work(n): return sum(range(n))\n")
    done = script(PACKAGE, "-m", "pkg.bench", name="pkg/bench.py")
    assert done.stdout == "done\n", done.stderr
    assert script(CALLER).stdout == "done\n"


TWO = """
import perfpipe
def first(): return lambda: None
perfpipe.profile(first, collector="timing")
def second(): return lambda: None
perfpipe.profile(second, collector="timing")
"""


def test_a_function_behind_a_call_of_profile_needs_a_guard(script: Script) -> None:
    done = script(TWO)
    assert done.returncode == 1
    assert "asks for a profile before it defines second" in done.stderr.splitlines()[-1]
    assert "if __name__ ==" in done.stderr.splitlines()[-1]


SLOW = """
import os, time, perfpipe
def slow():
    with open("began.tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename("began.tmp", "began")
    time.sleep(200)
if __name__ == "__main__":
    try:
        perfpipe.profile(slow, collector="timing")
    except KeyboardInterrupt:
        print(*perfpipe.report().frame("runs")["status"])
"""


def test_an_interrupt_ends_the_launch(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with subprocess.Popen(
        [sys.executable, "slow.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True,
    ) as script:  # fmt: skip
        while not (tmp_path / "began").exists():
            assert script.poll() is None
            time.sleep(0.05)
        script.send_signal(signal.SIGINT)
        assert script.communicate(timeout=120)[0] == "interrupted\n"
    assert not Path("/proc", (tmp_path / "began").read_text()).exists()


def _fails(size: int) -> object:
    if size > 1:
        raise ValueError(f"size {size} is too large")
    return sum


def _whole(size: int) -> int:
    return sum(range(size))


def _torch(size: int) -> object:
    import torch

    a = torch.ones(size, size)
    return lambda: a @ a


async def _async(size: int) -> None: ...


def test_a_call_is_the_step_where_nothing_is_returned_to_call(cli: Cli) -> None:
    frame = perfpipe.profile(_whole, {"size": [9, 9000]}, collector="timing", repeats=4).frame()
    assert list(frame["iterations"]) == [4, 4]
    assert frame["median_ms"][1] > frame["median_ms"][0] > 0


@pytest.mark.usefixtures("needs_torch")
def test_a_function_with_pytorch_is_timed_like_the_workloads(cli: Cli) -> None:
    result = perfpipe.profile(_torch, {"size": [8]}, collector="timing", repeats=4)
    assert result.frame(metrics=["iterations", "timing_method"]).to_dict("records") == [
        {"size": 8, "iterations": 4, "timing_method": "wall clock"}
    ]
    (task,) = result.runs[0].tasks
    assert task.software is not None and "torch" in task.software


def test_a_failed_configuration_is_a_row(cli: Cli) -> None:
    """`sum` is called without arguments, so size 1 fails in its step, size 2 while it prepares."""
    with pytest.raises(TaskFailed, match="2 of 2 tasks failed"):
        perfpipe.profile(_fails, {"size": [1, 2]}, collector="timing")
    result = perfpipe.profile(_half, {"size": [1, 2]}, collector="timing")
    done, failed = result.frame()["status"]
    assert done == "done" and "size 2 is too large" in failed
    assert [math.isnan(value) for value in result.frame()["median_ms"]] == [False, True]


def _half(size: int) -> object:
    _fails(size)
    return lambda: None


@pytest.mark.parametrize(
    ("function", "parameters", "settings", "said"),
    [
        (lambda: None, None, {}, "define a function with a name"),
        (len, None, {}, "only a function written in Python"),
        (_async, {"size": [1]}, {}, "an async function or a generator"),
        (_whole, {"siz": [1]}, {}, "_whole has no parameter siz; did you mean 'size'?"),
        (_whole, None, {}, "missing a required argument: 'size'"),
        (_whole, {"a b": [5]}, {}, "'a b' is not the name of a parameter"),
        (_whole, [1], {}, "give the values of each parameter"),
        (_whole, {"size": range(1000000)}, {}, "more than 100,000 configurations"),
        (5, None, {}, "5 is neither a function nor the path"),
        (_whole, {"size": 5}, {}, r"size needs a list of values, such as \[5\]"),
        (_whole, {"size": "abc"}, {}, "size needs a list of values"),
        (_whole, {"size": []}, {}, "no configurations"),
        (_whole, {"size": ["16"]}, {}, "size='16' cannot be a parameter"),
        (_whole, {"size": [float("nan")]}, {}, "size=nan cannot be a parameter"),
        (_whole, {"size": [[1]]}, {}, r"size=\[1\] cannot be a parameter"),
        (_whole, [{"size": 1}, {}], {}, "every configuration needs the same parameters"),
        (_whole, {"size": [1]}, {"repeat": 3}, "no setting repeat; did you mean 'repeats'?"),
        (_whole, {"size": [1]}, {"repeats": 0}, "repeats: .*greater than or equal to 1"),
        (_whole, {"size": [1]}, {"collector": "ncuu"}, "collector='ncuu': not one of auto"),
        (_whole, {"size": [1]}, {"collector": "replay"}, "has no recording"),
        (_whole, {"size": [1]}, {"metrics": "sm__x.sum"}, "metrics='sm__x.sum': give a list"),
        ("train.py", None, {}, "neither a function nor a workload file"),
        (str(ROOT / "workloads/gemm.yaml"), {"siz": [1]}, {}, "no parameter siz"),
    ],
)
def test_what_cannot_be_profiled_is_refused_before_any_launch(
    function: Any, parameters: Any, settings: dict[str, Any], said: str, cli: Cli, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        perfpipe.profile(function, parameters, **{"collector": "timing", **settings})
    assert not (tmp_path / "store").exists()


def test_a_function_inside_another_is_refused(cli: Cli) -> None:
    def inner() -> None: ...

    with pytest.raises(InputError, match="inner exists only inside test_a_function_inside"):
        perfpipe.profile(inner, collector="timing")


def test_without_a_gpu_a_function_without_a_recording_says_what_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfpipe.pipelines.plan.gpus_on", lambda _: ())
    monkeypatch.setattr("perfpipe.pipelines.api.profiling.gpus_on", lambda _: ())
    with pytest.raises(InputError, match=r'no GPU found, .* collector="timing" measures'):
        perfpipe.profile(_whole, {"size": [1]})


@pytest.mark.parametrize("value", [0, -5, 10**20, 0.1, 1e-300, 1e16, True, None, "fp16", "a b=c"])
def test_values_arrive_as_they_are(value: Any) -> None:
    assert value_of(str(value)) == value and type(value_of(str(value))) is type(value)


def test_a_frame_has_what_was_recorded(gemm: Results) -> None:
    frame = gemm.frame(metrics=["median_ms", "mfu_pct", "model_flop_per_s"])
    recorded = [task for task in RECORDED["tasks"] if task["params"]["size"] in (512, 8192)]
    assert [*zip(frame["size"], frame["dtype"], strict=True)] == [
        (task["params"]["size"], task["params"]["dtype"]) for task in recorded
    ]
    for task, found in zip(recorded, frame.to_dict("records"), strict=True):
        times = sorted(task["times_ms"])
        middle = len(times) // 2
        median = (times[middle] + times[~middle]) / 2
        assert math.isclose(found["median_ms"], median)
        assert math.isclose(found["model_flop_per_s"], 2 * found["size"] ** 3 / (median / 1e3))
    assert frame.attrs["columns"]["median_ms"] == "median iteration time, ms"


def test_a_metric_of_ncu_is_that_of_the_longest_kernel(gemm: Results) -> None:
    name = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    frame = gemm.frame(metrics=[name, "duration_ns", "kernel_name"])
    rows = gemm.sql(f"""
        SELECT m.value, l.duration_ns, l.kernel_name
        FROM run_tasks AS t, unnest(t.reports) AS r(report_id)
        JOIN ncu_launches AS l USING (report_id)
        JOIN ncu_metrics AS m USING (report_id, launch_id)
        WHERE m.metric = '{name}'
        ORDER BY t.task_index
    """).fetchall()
    assert [*frame[[name, "duration_ns", "kernel_name"]].itertuples(index=False, name=None)] == rows
    assert frame.attrs["columns"][name] == "ncu metric, %"
    assert len(gemm.frame(kernels=True)) == len(rows) == 4
    assert list(gemm.frame(metrics=["device__attribute_display_name"]).iloc[:, -1]) == 4 * [
        "NVIDIA H200"
    ]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (["foo__bar.sum"], "foo__bar.sum was not collected: run again with metrics="),
        (["mfupct"], "no metric mfupct; did you mean 'mfu_pct'?"),
        ("mfu_pct", "give a list of names"),
    ],
)
def test_an_unknown_metric_is_refused(gemm: Results, metrics: Any, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        gemm.frame(metrics=metrics)


def test_a_metric_that_a_recording_lacks_is_unknown(gemm: Results) -> None:
    frame = replace(gemm, metrics=("sm__foo.sum",)).frame()
    assert frame["sm__foo.sum"].isna().all()
    assert frame.attrs["columns"]["sm__foo.sum"] == "ncu metric that was not collected"


def test_a_view_is_a_frame(gemm: Results) -> None:
    assert list(gemm.frame("run_times")["task_index"]) == [0, 1, 2, 3]
    with pytest.raises(InputError, match="no table or view run_time; did you mean 'run_times'"):
        gemm.frame("run_time")


def _heights(line: Any) -> list[float]:
    return [float(height) for height in line.get_ydata()]


def test_a_plot_shows_the_recorded_rates_below_the_peak(gemm: Results, tmp_path: Path) -> None:
    figure = gemm.plot("size", "model_flop_per_s", by="dtype", path=tmp_path / "rates.png")
    (axes,) = figure.axes
    frame = gemm.frame(metrics=["model_flop_per_s", "mfu_pct"])
    drawn = {line.get_label(): line for line in axes.lines}
    for dtype, own in frame.groupby("dtype", sort=False):
        assert _heights(drawn[dtype]) == [rate / 1e12 for rate in own["model_flop_per_s"]]
    # The peak is the one that MFU refers to.
    (peak,) = (line for label, line in drawn.items() if "dense bf16, fp16 peak" in str(label))
    first = frame.iloc[0]
    reached = first["model_flop_per_s"] / (first["mfu_pct"] / 100) / 1e12
    assert math.isclose(_heights(peak)[0], reached)
    assert axes.get_ylabel() == "model_flop_per_s, TFLOP/s" and axes.get_xscale() == "log"
    assert "Replayed from a recording" in figure.get_supxlabel()
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_relative_to_a_line(gemm: Results) -> None:
    (axes,) = gemm.plot("size", by="dtype", baseline="fp16").axes
    drawn = {line.get_label(): line for line in axes.lines}
    times = {
        (row["size"], row["dtype"]): row["median_ms"]
        for row in gemm.frame(metrics=["median_ms"]).to_dict("records")
    }
    assert _heights(drawn["fp16"]) == [1, 1]
    assert _heights(drawn["bf16"]) == [times[8192, "bf16"] / times[8192, "fp16"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"x": "siz"}, "no parameter siz; did you mean 'size'?"),
        ({"x": "size", "y": "kernel_name"}, "kernel_name is not a number"),
        ({"x": "size", "y": "energy_j"}, "no configuration has a value of energy_j"),
        ({"x": "dtype", "by": "dtype"}, "several configurations with dtype=fp16"),
        ({"x": "size", "baseline": "fp4"}, "baseline=fp4: no such line (fp16, bf16, fp8)"),
        ({"x": "size", "path": "plot.bmp"}, "the name of a plot ends in .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_drawn_is_refused(gemm: Results, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        gemm.plot(**options)


def test_reports_by_name(
    gemm: Results, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFPIPE_STORE", str(gemm.store.root))
    for name in ((), ("@1",), ("gemm",), (gemm.run_id[:10],)):
        found = perfpipe.report(*name)
        assert found.run_id == gemm.run_id
    assert found.verdict.startswith("fp16 peaks at 753 TFLOP/s (76 % of peak) at size 8192")
    assert "NVIDIA H200" in repr(found)
    found.save(tmp_path / "page.html")
    assert "Replayed from a recording" in (tmp_path / "page.html").read_text()
    with pytest.raises(InputError, match="the name of a report ends in"):
        found.save("page.pdf")
    with pytest.raises(InputError, match="no run @9"):
        perfpipe.report("@9")
    assert cli("try", "@1") == 2
    assert "is a run of a workload file" in cli.err


def test_perfpipe_try_names_a_run_of_a_function(cli: Cli) -> None:
    perfpipe.profile(_whole, {"size": [9]}, collector="timing", repeats=1)
    assert cli("try", "@1") == 2
    assert "is a run of a function" in cli.err


def _blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)


def test_the_code_of_the_page_runs(script: Script, tmp_path: Path) -> None:
    first, example, *rest = _blocks()
    assert example in EXAMPLE.read_text()
    done = script("\n".join([first, *rest]))
    assert done.returncode == 0, done.stderr
    assert "% of the vendor's dense peak" in done.stdout
    assert (tmp_path / "gemm.png").exists() and (tmp_path / "gemm.html").exists()


def test_the_example_replays_and_says_so(script: Script, tmp_path: Path) -> None:
    done = script("", str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    assert "replaying a recording, nothing is measured" in done.stderr
    assert "fp16 peaks at 753 TFLOP/s" in done.stdout
    assert (tmp_path / "gemm.png").exists()
