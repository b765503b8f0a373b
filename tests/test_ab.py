"""Two arms measured in turns: real programs, real launches, work trees, early ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from histories import committed

from perfpipe.analysis.gate.ab import ALPHA, Round, certain, level_after, side_of_rounds
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.decision import decide, headline
from perfpipe.analysis.gate.order import orders
from perfpipe.pipelines.console import progress
from perfpipe.pipelines.gate.ab import Outcome, ab
from perfpipe.pipelines.gate.arms import Source, arm_of
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store

PROGRAM = """
import json, os, pathlib, sys
with open(os.environ.get("ORDER", "order"), "a") as file:
    file.write(os.environ.get("ARM", "-"))
count = len(pathlib.Path(os.environ.get("ORDER", "order")).read_text())
ms = float(os.environ.get("MS", "10")) * (1 + 0.001 * (count % 3))
if os.environ.get("FAIL"):
    sys.exit("broken")
print(json.dumps({"perfpipe": "time", "ms": [ms, ms]}))
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = tmp_path / "w.yaml"
    path.write_text("version: 1\nname: w\ncommand: ['{python}', program.py]\nenv: {MS: '10'}\n")
    return path


def _rounds(order: str) -> list[str]:
    return [order[at : at + 2] for at in range(0, len(order), 2)]


def test_arms_take_turns_at_random_and_a_regression_is_confirmed(
    workload: Path, cli: Cli, tmp_path: Path
) -> None:
    words = ["--a", "env.ARM=a", "--b", "env.ARM=b", "--b", "env.MS=11"]
    assert cli("ab", str(workload), *words, "--json") == 3, cli.err
    assert "warm-up: 2 launches, not counted" in cli.err
    found = json.loads(cli.out)
    assert (found["verdict"], found["action"]) == ("regressed", "revert")
    order = (tmp_path / "order").read_text()
    assert order.startswith("ab"), "the launches that do not count"
    counted = order[2:]
    assert {*_rounds(counted)} == {"ab", "ba"}
    half = len(counted) // 2
    assert half in (6, 8), "certain before all rounds were used up, and again to confirm"
    for part in (counted[:6], counted[half : half + 6]):
        assert part not in ("ababab", "bababa", "abbaab", "baabba"), "no period of two or four"
    assert found["endpoints"][0]["runs"] == [half, half], "all rounds count"
    runs = Store(tmp_path / "store").runs()
    assert len(runs) == len(counted), "the first launches are not stored"
    assert {run.tasks[0].notes[0].split(",")[0] for run in runs} == {"arm a", "arm b"}
    (tmp_path / "order").unlink()
    assert cli("ab", str(workload), *words, "--no-confirm") == 3
    assert cli.out.startswith("Regressed: iteration: +")
    assert "Investigate" in cli.out
    assert len((tmp_path / "order").read_text()) in (8, 10)


def _ab(
    workload: Path, store: Path, b: Sequence[str], seed: int, *, confirm: bool = True
) -> Outcome:
    """Compare the workload with settings of arm B, in a known order, in at most five rounds."""
    arms = arm_of("a", Source(workload), ()), arm_of("b", Source(workload), b)
    with progress("t", 5, quiet=True) as steps:
        return ab(arms, Store(store), 5, steps, seed=seed, confirm=confirm)


def _slow_launches(seed: str, rounds: int, first: int) -> list[int]:
    """Return the launches of arm B in some rounds that begin with launch number `first`."""
    return [
        first + 2 * number + order.index(1)
        for number, order in zip(range(rounds), orders(seed), strict=False)
    ]


def _slowed(tmp_path: Path, launches: Sequence[int], factor: float) -> None:
    """Let the program be slower in some of its launches, counted from 1."""
    line = f"ms *= {factor} if count in {[*launches]} else 1\nif os"
    (tmp_path / "program.py").write_text(PROGRAM.replace("if os", line, 1))


@pytest.mark.parametrize("seed", [1, 3])
def test_a_seed_repeats_an_order(seed: int, workload: Path, tmp_path: Path) -> None:
    """The program is slower in the launches of arm B only if the order is that of the seed."""
    _slowed(tmp_path, _slow_launches("1 0", 5, 3), 1.2)
    found = _ab(workload, tmp_path / "store", ["env.OTHER=1"], seed, confirm=False)
    assert (found.decision.verdict == "regressed") == (seed == 1)
    (note,) = {run.tasks[0].notes[0].split(", ")[2] for run in Store(tmp_path / "store").runs()}
    assert note == f"order from seed {seed}"


def test_a_regression_that_fresh_rounds_do_not_show_is_no_reason_to_revert(
    workload: Path, tmp_path: Path
) -> None:
    """Noise slows arm B in the first rounds only: much, so that all rounds together show it."""
    _slowed(tmp_path, _slow_launches("1 0", 3, 3), 1.2)
    decision = _ab(workload, tmp_path / "store", ["env.OTHER=1"], 1).decision
    assert (decision.verdict, decision.action) == ("inconclusive", "investigate")
    assert "the first 3 rounds showed a regression that all rounds together do not" in (
        decision.reason
    )
    assert decision.endpoints[0].verdict != "regressed"


def test_a_slow_first_launch_is_named_and_does_not_count(
    workload: Path, cli: Cli, tmp_path: Path
) -> None:
    _slowed(tmp_path, [1], 1.3)
    assert cli("ab", workload, "--b", "env.OTHER=1", "--fail-on", "inconclusive") == 0, cli.err
    assert cli.out.startswith("Same: ")
    assert "An iteration of arm a took 13 ms in the first launch and 10 ms in later launches" in (
        " ".join(cli.out.split())
    )
    assert cli("ab", workload, "--b", "env.OTHER=1", "--json") == 0
    assert json.loads(cli.out)["notes"] == []


def test_the_same_program_is_the_same(workload: Path, cli: Cli) -> None:
    assert cli("ab", str(workload), "--b", "env.OTHER=1", "--fail-on", "inconclusive") == 0, cli.err
    assert cli.out.startswith("Same: ")


def test_what_the_arms_set_is_the_first_cause(cli: Cli) -> None:
    path = Path(__file__).parents[1] / "workloads" / "cpu_noise.yaml"
    alike = [f"--{arm}={name}" for arm in "ab" for name in ("clock=work", "noise=0")]
    words = [*alike, "--b=slowdown=0.05", "--b=env.CUDA_X=1", "--b=wrapper=nice -n 1"]
    assert cli("ab", path, *words, "--rounds", "2", "--no-confirm", "--json") == 3, cli.err
    why = json.loads(cli.out)["why"]
    assert why["text"].startswith(
        "Settings that were changed on purpose: parameter slowdown 0 -> 0.05, "
        "arm wrapper as in the file -> nice -n 1, environment CUDA_X unset -> 1. "
    )
    assert "All other settings, versions and the machine are the same" in why["text"]
    given = [(row["name"], row["given"]) for row in why["differences"]]
    assert given == [("slowdown", True), ("wrapper", True), ("CUDA_X", True)]


def test_an_arm_against_itself_in_a_fixed_number_of_rounds(
    workload: Path, cli: Cli, tmp_path: Path
) -> None:
    words = ["--aa", "--rounds", "4", "--json", "aa.json", "--md", "aa.md", "--html", "aa.html"]
    assert cli("ab", str(workload), *words, "--no-early-stop") == 0, cli.err
    found = json.loads((tmp_path / "aa.json").read_text())
    assert (found["aa"], found["verdict"], found["action"]) == (True, "same", "continue")
    assert found["endpoints"][0]["runs"] == [4, 4], "certain before, but all rounds are measured"
    assert len((tmp_path / "order").read_text()) == 9, "one launch warms up both"
    assert cli.err.count("the verdict follows the last round") == 3
    for name in ("aa.md", "aa.html"):
        assert "A/A, same: iteration" in (tmp_path / name).read_text()


def test_an_arm_against_itself_is_a_false_alarm_and_no_regression(
    workload: Path, tmp_path: Path
) -> None:
    """The program is slower in the launches of arm B."""
    _slowed(tmp_path, _slow_launches("1 0", 5, 2), 1.2)
    found = _ab(workload, tmp_path / "store", (), 1)
    assert headline(found.decision).startswith("A/A, regressed: iteration: +")
    assert "Investigate: this is a false alarm" in headline(found.decision)
    assert found.rounds <= 5, "there is nothing to confirm"


def test_an_arm_that_fails_ends_it(workload: Path, cli: Cli, tmp_path: Path) -> None:
    assert cli("ab", str(workload), "--b", "env.FAIL=1") == 1
    assert cli.out.startswith("Failed: arm b: the program exited with code 1: broken. Investigate:")
    assert "fix the program, then measure again." in " ".join(cli.out.split())
    for word in ("measure more", "gone", "Why it changed"):
        assert word not in cli.out
    assert len((tmp_path / "order").read_text()) == 4


def test_an_arm_that_fails_in_one_of_several_configurations(workload: Path, cli: Cli) -> None:
    program = PROGRAM.replace('os.environ.get("FAIL")', 'sys.argv[1] == "1"')
    workload.with_name("program.py").write_text(program)
    text = workload.read_text().replace("program.py", "program.py, '{bad}'")
    workload.write_text(f"{text}matrix: {{bad: [0, 1], size: [1, 2]}}\n")
    assert cli("ab", str(workload), "--b", "env.OTHER=1", "--json") == 1, cli.err
    found = json.loads(cli.out)
    assert found["reason"] == (
        "arm a, bad=1 size=1: the program exited with code 1: broken (and 3 more)"
    )
    assert [pair["verdict"] for pair in found["endpoints"]] == ["unreplicated"] * 2


def test_an_arm_that_prints_no_times(workload: Path, cli: Cli) -> None:
    program = PROGRAM.replace("print(", 'os.environ.get("QUIET") or print(')
    workload.with_name("program.py").write_text(program)
    assert cli("ab", str(workload), "--b", "env.QUIET=1") == 4, cli.err
    text = " ".join(cli.out.split())
    assert "Investigate: let both sides print times, or neither." in text
    assert " Differences: " in text
    assert "Arm b printed no times: let both arms print times, or neither." in text
    assert "measured without a profiler" not in text


def test_wall_time_where_a_program_prints_none(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        "version: 1\nname: w\ncommand: [sleep, '{seconds}']\nmatrix: {seconds: ['0.02']}\n"
    )
    assert cli("ab", str(path), "--a", "seconds=0.02", "--b", "seconds=1.2", "--no-confirm") == 3
    assert cli.out.startswith("Regressed: wall time: +")


def test_times_that_one_arm_alone_prints_are_not_compared(
    workload: Path, cli: Cli, tmp_path: Path
) -> None:
    """Of two configurations one is silent in arm B: the wall time of its launches is no iteration."""
    silent = PROGRAM.replace("print(", "if os.environ.get('SILENT') != sys.argv[1]: print(")
    (tmp_path / "program.py").write_text(silent)
    workload.write_text(
        "version: 1\nname: w\ncommand: ['{python}', program.py, '{n}']\nmatrix: {n: [1, 2]}\n"
    )
    words = ("ab", workload, "--b", "env.SILENT=2")
    assert cli(*words, "--json", "ab.json") == 4, cli.err
    found = json.loads((tmp_path / "ab.json").read_text())
    assert (found["verdict"], found["action"]) == ("not comparable", "investigate")
    assert found["reason"] == "n=2: the program printed times on one side only"
    assert "perfpipe: not comparable: n=2: " in cli.err
    assert len((tmp_path / "order").read_text()) == 8, "further rounds would not help"
    assert cli(*words, "--allow-not-comparable") == 0


def test_profiles_of_both_arms_explain(
    workload: Path,
    cli: Cli,
    tmp_path: Path,
    profilers: Path,
    expand: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stand-ins of nsys and ncu record what the program says: arm a eager, arm b as a graph."""
    link = "link = pathlib.Path(os.environ['LINK'])\nlink.unlink()\nlink.symlink_to(os.environ['SEEN'])\n"
    (tmp_path / "program.py").write_text(PROGRAM + link)
    monkeypatch.setenv("LINK", str(profilers / "timeline.sqlite"))
    seen = [str(expand(f"nsys/{name}.sqlite")) for name in ("graph_node", "eager_small")]
    words = ["--a", f"env.SEEN={seen[0]}", "--b", f"env.SEEN={seen[1]}", "--b", "env.MS=60"]
    words += ["--no-confirm", "--explain", "--json", "found.json"]
    assert cli("ab", str(workload), *words) == 3, cli.err
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["verdict"], found["action"]) == ("regressed", "investigate")
    text = found["why"]["text"]
    assert "A step changed by +7.83 ms: launch gap +5.37 ms, 69 % of the change" in text
    assert "CUDA graphs 100 % of the kernels -> 0 % of the kernels" in text
    assert "environment MS 10 -> 60" in text
    assert text.split()[:4] == cli.out.partition("Why it changed: ")[2].split()[:4]
    collectors = [run.collector for run in Store(tmp_path / "store").runs()]
    assert collectors.count("nsys") == 2


def test_commits_are_compared_in_work_trees(cli: Cli, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / "bench").mkdir(parents=True)
    path = repository / "bench" / "w.yaml"
    path.write_text("version: 1\nname: w\ncommand: ['{python}', program.py]\n")

    for ms in ("10", "12"):
        (repository / "bench" / "program.py").write_text(
            f'ms = open(\'built\').read()\nprint(\'{{"perfpipe": "time", "ms": [%s]}}\' % ms)\n# {ms}'
        )
        (repository / "ms").write_text(ms)
        committed(repository, ms)
    words = ["--git", "HEAD~1..HEAD", "--build", "cp ms bench/built", "--no-confirm"]
    assert cli("ab", str(path), *words) == 3, cli.err
    assert "+20.0 %" in cli.out
    trees = subprocess.run(
        ["git", "-C", repository, "worktree", "list"], check=True, capture_output=True, text=True
    ).stdout
    assert len(trees.splitlines()) == 1, "work trees are removed"
    assert cli("ab", str(path), "--git", "HEAD~1..HEAD", "--build", "false") == 1
    assert "false failed in" in cli.err
    assert ": exit code 1" in cli.err
    assert cli("ab", str(path), "--git", "HEAD..nowhere") == 2
    assert "nowhere is not a commit in this repository" in cli.err


def test_a_program_without_a_workload_file(workload: Path, cli: Cli, tmp_path: Path) -> None:
    program = [sys.executable, "program.py"]
    words = ["--a", "env.MS=10", "--b", "env.MS=11", "--no-confirm", "--json", "ab.json"]
    assert cli("ab", *words, "--env", "ARM=x", "--", *program) == 3, cli.err
    found = json.loads((tmp_path / "ab.json").read_text())
    assert found["endpoints"][0]["change_pct"] == pytest.approx(10, abs=1)
    assert "environment MS 10 -> 11" in found["why"]["text"]
    assert {*(tmp_path / "order").read_text()} == {"x"}
    runs = Store(tmp_path / "store").runs()
    assert {(run.workload, run.words) for run in runs} == {("program", tuple(program))}


def test_a_program_with_another_interpreter(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    slow = tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\nMS=12 exec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    words = ["--b", f"python={slow}", "--no-confirm", "--", "python3", "program.py"]
    assert cli("ab", *words) == 3, cli.err
    assert "slow-python" in cli.out
    assert cli("ab", "--b", "python=/x", "--", "sleep", "0") == 2
    assert "no Python interpreter to replace" in cli.err


def test_commits_of_a_program_that_the_build_makes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    make = tmp_path / "make.sh"
    for ms in ("10", "12"):
        make.write_text(
            'printf \'#!/bin/sh\necho %s\' "\'{\\"perfpipe\\": \\"time\\", \\"ms\\": '
            f"[{ms}]}}'\" > bench/made\nchmod +x bench/made\n"
        )
        (tmp_path / "bench" / "kept").touch()
        committed(tmp_path, ms)
    words = ["--git", "HEAD~1..HEAD", "--build", "sh make.sh", "--no-confirm", "--cwd", "bench"]
    assert cli("ab", *words, "--", "./made") == 3, cli.err
    assert "+20.0 %" in cli.out
    assert cli("ab", *words, "--", "sh", str(make)) == 2
    assert f"{make} is in this checkout, so each commit would use the same file" in cli.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the arms are identical"),
        (["--b", "size=1,2"], "an arm takes one value per parameter"),
        (["--b", "cwd=nowhere"], "--b: no such directory"),
        (["--git", "HEAD"], "expected two commits, A..B or A...B"),
        (["--b", "x"], "expected NAME=VALUE"),
        (["--b", "env.A=1", "--build", "make"], "--build needs --git"),
        (["--aa", "--b", "env.A=1"], "both arms are A"),
        (["--b", "env.A=1", "--", "sleep", "1"], "give a workload file, or a program after --"),
        (["--b", "env.A=1", "--cwd", "."], "--env and --cwd are for a program after --"),
    ],
)
def test_what_cannot_be_compared(
    words: list[str], sentence: str, workload: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("ab", str(workload), *words) == 2
    assert sentence in cli.err
    assert not (tmp_path / "store").exists()


def test_the_looks_spend_five_percent() -> None:
    for most in range(2, 12):
        levels = [level for n in range(1, most + 1) if (level := level_after(n, most)) is not None]
        assert sum(levels) == pytest.approx(ALPHA)
        assert levels == sorted(levels), "little at first"
        assert level_after(min(most, 3) - 1, most) is None
        once = [level_after(n, most, early=False) for n in range(1, most + 1)]
        assert once == [None] * (most - 1) + [pytest.approx(ALPHA)]


def _simulated(rng: np.random.Generator, change: float, scatter: float, most: int) -> str | None:
    """Return the verdict of `ab` on normal noise."""
    rounds: list[list[Round]] = [[], []]
    for number in range(most):
        for arm in (0, 1):
            ms = float(np.exp(rng.normal(change * arm, scatter)))
            result = TaskResult(0, "-", {}, times_ms=(10 * ms,))
            rounds[arm].append(Round(2 * number + (arm + number) % 2, (result,)))
        level = level_after(number + 1, most)
        if level is None:
            continue
        sides = [side_of_rounds(name, own, ["-"]) for name, own in zip("ab", rounds, strict=True)]
        found = decide(pairs_of(sides[0], sides[1], alpha=level))
        if certain(found.endpoints):
            break
    return found.verdict


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[float, list[str | None]]]:
    rng = np.random.default_rng(1)
    yield {change: [_simulated(rng, change, 0.01, 5) for _ in range(300)] for change in (0.0, 0.04)}


def test_few_false_alarms_and_most_changes_found(
    verdicts: dict[float, list[str | None]],
) -> None:
    false = sum(verdict in ("regressed", "improved") for verdict in verdicts[0.0])
    assert false <= 6, "at most 1 % are expected"
    assert sum(verdict == "regressed" for verdict in verdicts[0.04]) >= 270
