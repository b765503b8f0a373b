"""The levers of a workload file."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfpipe.errors import InputError
from perfpipe.pipelines.tasks import placeholders, tasks
from perfpipe.pipelines.trying import workload_levers
from perfpipe.pipelines.trying.levers import Lever
from perfpipe.pipelines.trying.workload_levers import own_levers
from perfpipe.pipelines.workload import load_workload

GOOD = """\
version: 1
name: w
command: [prog, "{batch}", "{{free}}", "--lr={lr}"]
matrix: {batch: [1, 2], lr: [0.1], unused: [1]}
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "w.yaml"
    path.write_text(text)
    return path


def test_levers_of_a_workload(tmp_path: Path) -> None:
    (tmp_path / "fast.patch").touch()
    path = _write(tmp_path, GOOD + """\
levers:
  arena: {env: {MALLOC_ARENA_MAX: "2"}, expect: identical}
  larger: {title: Larger batches, arguments: {batch: 8}, expect: tolerance, tolerance: 1e-2}
  fast: {patch: fast.patch, build: "make 'A=b c'", manual: use -O3}
  all: {env: {A: "b c"}, arguments: {lr: 0.2}, patch: fast.patch, build: make}
""")  # fmt: skip
    found = own_levers(load_workload(path), path)
    assert [*found] == ["arena", "larger", "fast", "all"]
    arena, larger, fast, every = found.values()
    assert (arena.name, arena.title, arena.expect) == ("arena", "arena", "identical")
    assert (arena.env, arena.injected) == ({"MALLOC_ARENA_MAX": "2"}, False)
    assert (larger.title, larger.arguments, larger.tolerance) == (
        "Larger batches",
        {"batch": 8},
        0.01,
    )
    assert (fast.patch, fast.build) == (tmp_path / "fast.patch", "make 'A=b c'")
    assert fast.expect == "scatter"
    assert fast.manual([]) == "use -O3"
    assert every.manual([]).splitlines() == [
        "git apply fast.patch", "make", "export A='b c'", "lr: 0.2",
    ]  # fmt: skip


def test_no_levers(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD)
    assert own_levers(load_workload(path), path) == {}
    # A program without a workload file has none either, and its file does not exist.
    assert own_levers(load_workload(path), tmp_path / "missing.yaml") == {}


def test_levers_do_not_change_what_a_task_is(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD)
    keys = [task.key for task in tasks(load_workload(path), path)]
    path = _write(tmp_path, GOOD + "levers: {a: {env: {A: b}}}\n")
    assert [task.key for task in tasks(load_workload(path), path)] == keys


@pytest.mark.parametrize(
    ("lever", "sentence"),
    [
        ("a: {}", r"w.yaml:6: levers.a: a lever needs env, arguments, patch or build"),
        ("a: {env: {}}", r"w.yaml:6: levers.a: a lever needs"),
        ("a: {build: '  '}", r"w.yaml:6: levers.a: patch and build must not be empty"),
        ("a: {enw: {A: b}}", r"w.yaml:6: unknown key 'enw'; did you mean 'env'\?"),
        ("a:\n    env:\n      A: 1", r"w.yaml:8: levers.a.env.A: input should be a valid string"),
        (
            "a:\n    env: {A: b}\n    expect: same",
            r"w.yaml:8: levers.a.expect: input should be 'ide",
        ),
        (
            "a: {env: {A: b}, expect: tolerance}",
            r"w.yaml:6: levers.a: expect: tolerance and tolera",
        ),
        ("a: {env: {A: b}, tolerance: 0.1}", r"w.yaml:6: levers.a: expect: tolerance and tolera"),
        (
            "a: {env: {A: b}, expect: tolerance, tolerance: 0}",
            r"w.yaml:6: levers.a.tolerance: input",
        ),
        ("a:b: {env: {A: b}}", r"w.yaml:6: levers.a:b: the name of a lever has letters, digits"),
        ("a b: {env: {A: b}}", r"w.yaml:6: levers.a b: the name of a lever"),
        ("a: [x]", r"w.yaml:6: levers.a: input should be a valid dictionary or instance"),
        ("a: {env: {A: b}}\n  a: {env: {A: c}}", r"w.yaml:7: duplicate key 'a', first defined in"),
    ],
)
def test_faults_in_the_file(tmp_path: Path, lever: str, sentence: str) -> None:
    path = _write(tmp_path, f"{GOOD}levers:\n  {lever}\n")
    with pytest.raises(InputError, match=sentence):
        load_workload(path)


@pytest.mark.parametrize(
    ("lever", "sentence"),
    [
        (
            "a:\n    arguments:\n      bach: 8",
            r"w.yaml:8: 'bach' is not a parameter that the command uses \(it uses batch, lr\); did you",
        ),
        ("a: {arguments: {unused: 8}}", r"w.yaml:6: 'unused' is not a parameter that the command"),
        ("a: {arguments: {free: 8}}", r"w.yaml:6: 'free' is not"),
        ("a: {arguments: {repeats: 8}}", r"w.yaml:6: 'repeats' is not"),
        ("a:\n    patch: no.patch", r"w.yaml:7: levers.a.patch: no such file: .*/no.patch"),
        ("a:\n    build: make 'x", r"w.yaml:7: levers.a.build: no closing quotation"),
        (
            "a: {patch: p, arguments: {x: 1}}",
            r"w.yaml:6: 'x' is .*\n.*w.yaml:6: levers.a.patch: no",
        ),
    ],
)
def test_faults_that_the_program_shows(tmp_path: Path, lever: str, sentence: str) -> None:
    path = _write(tmp_path, f"{GOOD}levers:\n  {lever}\n")
    with pytest.raises(InputError, match=sentence):
        own_levers(load_workload(path), path)


def test_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Lever("compile", {"mode": "x"}, default=False)
    monkeypatch.setattr(workload_levers, "levers", lambda: {taken.name: taken})
    path = _write(tmp_path, GOOD + "levers: {compile: {env: {A: b}}}\n")
    with pytest.raises(
        InputError, match=r"w.yaml:5: levers.compile: perfpipe has a lever with this"
    ):
        own_levers(load_workload(path), path)


def test_parameters_of_a_search_can_be_changed(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        "version: 1\nname: w\ncommand: [prog, '{tile}']\n"
        "tune: {parameters: {tile: [1, 2]}}\nlevers: {a: {arguments: {tile: 2}}}\n",
    )
    assert own_levers(load_workload(path), path)["a"].arguments == {"tile": 2}


def test_names_in_a_command() -> None:
    assert placeholders(["{a}{b}", "{{c}}", "--x={d}", "{a b}"]) == {"a", "b", "d"}
