from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.pipelines.expression import evaluate
from perfpipe.pipelines.strict_yaml import load
from perfpipe.pipelines.tasks import tasks
from perfpipe.pipelines.workload import load_workload

GOOD = 'version: 1\nname: w\ncommand: [prog, "{m}"]\nmatrix: {m: [1, 2]}\n'


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    return path


def test_the_shipped_workload() -> None:
    path = ROOT / "workloads" / "gemm.yaml"
    found = tasks(load_workload(path), path)
    assert len(found) == 8
    assert found[-1].params == {"size": 8192, "dtype": "fp8"}
    assert found[5].params == {"size": 16384, "dtype": "fp16"}
    assert found[5].flops == 2 * 16384**3
    assert found[5].bytes == 3 * 16384**2 * 2
    assert len({task.key for task in found}) == 8


def test_parameters_can_be_set(tmp_path: Path) -> None:
    path = ROOT / "workloads" / "gemm.yaml"
    workload = load_workload(path, {"size": [64], "dtype": ["fp16"], "repeats": [3]})
    assert [task.params for task in tasks(workload, path)] == [{"size": 64, "dtype": "fp16"}]
    assert workload.repeats == 3


def test_options_of_slurm_do_not_change_what_a_task_is(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD)
    keys = [task.key for task in tasks(load_workload(path), path)]
    path = _write(tmp_path, GOOD + "slurm: {time: 1:30:00, gpus: 4}\n")
    workload = load_workload(path)
    assert workload.slurm is not None
    assert (workload.slurm.time, workload.slurm.gpus) == ("0-01:30:00", 4)
    assert [task.key for task in tasks(workload, path)] == keys


def test_excluded_combinations(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD + "exclude: [{m: 2}]\n")
    assert [task.params for task in tasks(load_workload(path), path)] == [{"m": 1}]
    path = _write(tmp_path, GOOD + "exclude: [{m: 2}, {m: 1}]\n")
    with pytest.raises(InputError, match="no configurations left"):
        tasks(load_workload(path), path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD + "repeat: 3\n", r"w.yaml:5: unknown key 'repeat'; did you mean 'repeats'\?"),
        (GOOD + "collect: {ncu: {sett: full}}\n", r"w.yaml:5: unknown key 'sett'; .*'set'"),
        (GOOD.replace("version: 1", "version: 2"), r"w.yaml:1: version: input should be 1"),
        (GOOD.replace('[prog, "{m}"]', "prog"), r"w.yaml:3: command: input should be a valid list"),
        (GOOD + "repeats: 0\n", r"w.yaml:5: repeats: input should be greater"),
        (GOOD + "name: again\n", r"w.yaml:5: duplicate key 'name', first defined in line 2"),
        (GOOD + "env: {A: off}\n", None),
        (GOOD + "env: {A: 1:30}\n", None),
        (GOOD + "slurm: {partitoin: x}\n", r"w.yaml:5: unknown key 'partitoin'; .*'partition'"),
        (
            GOOD + "slurm:\n  gpus: 1\n  time: 90:00\n",
            r"w.yaml:7: slurm.time: '90:00' is not a valid time limit, or is ambiguous",
        ),
        (GOOD + "slurm: {container: {imag: x}}\n", r"w.yaml:5: unknown key 'imag'; .*'image'"),
        ("- a\n", "not a workload"),
        ("", "not a workload"),
        ("a: [\n", r"w.yaml:2: "),
        ("1: a\n", r"w.yaml:1: key 1 is not a string"),
    ],
)
def test_faults_are_named_with_their_line(text: str, sentence: str | None, tmp_path: Path) -> None:
    path = _write(tmp_path, text)
    if sentence is None:
        assert load_workload(path).env["A"] in ("off", "1:30")
        return
    with pytest.raises(InputError, match=sentence):
        load_workload(path)


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    path = _write(tmp_path, "version: 3\nname: w\ncomand: []\n")
    with pytest.raises(InputError) as caught:
        load_workload(path)
    assert str(caught.value).count(f"{path}:") == 3 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("1:30:00", "1:30:00"),
        ("2026-01-01", "2026-01-01"),
        ("010", "010"),
        ("1e3", 1000.0),
        ("0x10", "0x10"),
        ("true", True),
        ("~", None),
        ("-3", -3),
        ("1.5", 1.5),
        ("'1'", "1"),
    ],
)
def test_plain_scalars_hold_no_surprise(text: str, value: object, tmp_path: Path) -> None:
    assert load(_write(tmp_path, f"a: {text}\n"))[0] == {"a": value}


def test_unknown_parameters_are_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD.replace("{m}", "{mm}"))
    with pytest.raises(InputError, match=r"unknown parameter \{mm\}.*did you mean 'm'"):
        tasks(load_workload(path), path)
    path = _write(tmp_path, GOOD + "work: {samples: 8*m, tokens: 100}\n")
    assert [(t.samples, t.tokens) for t in tasks(load_workload(path), path)] == [
        (8, 100),
        (16, 100),
    ]
    path = _write(tmp_path, GOOD + "work: {flops: 2*x}\n")
    with pytest.raises(InputError, match=r"work.flops: unknown name 'x'"):
        tasks(load_workload(path), path)


numbers = st.integers(-1000, 1000)
expressions = st.recursive(
    numbers.map(lambda n: f"({n})"),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=12,
)


@given(expressions)
def test_arithmetic_is_that_of_python(expression: str) -> None:
    assert evaluate(expression, {}) == eval(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os')",
        "m.real",
        "m[0]",
        "lambda: 1",
        "'a' * 3",
        "1 if m else 2",
        "m == 1",
        "9**9**9",
        "1/0",
        "True",
        "m m",
        "",
        # What would take for ever, has no real value, or is nested beyond what Python takes.
        "((((9**64)**64)**64)**64)**64",
        "(9**64)**64/7",
        "0**-1",
        "(-8)**0.5",
        "1e200*1e200",
        "9" * 1_000,
        "1\0",
        "+".join(["1"] * 20_000),
        "-" * 1_900 + "1",
        "(" * 900 + "1" + ")" * 900,
    ],
    ids=range(22),
)
def test_nothing_but_arithmetic(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        evaluate(expression, {"m": 1})


def test_more_configurations_than_anyone_runs(tmp_path: Path) -> None:
    matrix = "".join(f"  p{n}: [{', '.join(map(str, range(20)))}]\n" for n in range(8))
    path = _write(tmp_path, f"{GOOD.split('matrix:')[0]}matrix:\n{matrix}")
    with pytest.raises(InputError, match=r"25,600,000,000 configurations, more than 100,000"):
        tasks(load_workload(path), path)


def test_yaml_nested_too_deeply(tmp_path: Path) -> None:
    path = _write(tmp_path, f"matrix: {'[' * 5_000}")
    with pytest.raises(InputError, match="nested too deeply"):
        load_workload(path)
