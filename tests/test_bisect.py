"""Bisections through the command line: real repositories, builds, submodules, packages."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli
from histories import committed, git
from kills import heed_signals

from perfpipe.errors import InputError
from perfpipe.pipelines import tools
from perfpipe.pipelines.gate.first_parents import first_parents
from perfpipe.pipelines.gate.versions import wanted
from perfpipe.store import Store

PROGRAM = """
ms=$(cat ms)
test "$ms" != broken || { echo it is broken >&2; exit 1; }
echo '{"perfpipe": "time", "ms": ['$ms']}'
"""

#: The times are exact, so few rounds are enough.
FEW = ("--rounds", "3")

RUN = ("--", "sh", "bench.sh")


@pytest.fixture
def history(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Make a repository in which each commit has a time, ms, and go there; returns the hashes."""
    repository = tmp_path / "repository"

    def make(times: list[str]) -> list[str]:
        repository.mkdir()
        monkeypatch.chdir(repository)
        (repository / "bench.sh").write_text(PROGRAM)
        made = []
        for number, ms in enumerate(times):
            (repository / "ms").write_text(ms)
            made.append(committed(repository, f"change {number}"))
        git(repository, "tag", "good", made[0])
        git(repository, "tag", "bad", made[-1])
        return made

    return make


def _answer(cli: Cli, code: int, *words: str, program: tuple[str, ...] = RUN) -> dict[str, Any]:
    assert cli("bisect", "--json", *FEW, *words, *program) == code, cli.err
    found: dict[str, Any] = json.loads(cli.out)
    return found


def _name(found: dict[str, Any], which: str = "after") -> str:
    return str(found[which]["name"])


def test_the_commit_that_made_it_slower(
    history: Callable[..., list[str]], cli: Cli, tmp_path: Path
) -> None:
    commits = history(["10"] * 6 + ["11"] * 5)
    (Path.cwd() / "ms").write_text("50")
    assert cli("bisect", *FEW, "--git", "good..bad", *RUN) == 0, cli.err
    made = rf"{commits[6][:12]} \(change 6\) made the program 10\.0 % slower \(\+.* to \+.* %\)\.\n"
    assert re.match(made, cli.out), cli.out
    assert "uncommitted changes of this checkout are not part of the search" in cli.err
    assert "BAD is 10.0 % slower than GOOD (+" in cli.out
    for place, end in ((5, "GOOD"), (6, "BAD")):
        like = rf"{commits[place][:12]} \(change {place}\) is like {end}; \d likely commits? left"
        assert re.search(like, cli.err), cli.err
    steps = re.findall(r"^\[(\d+)/(\d+)\] (.*)", cli.err, re.MULTILINE)
    assert all(int(done) <= int(total) for done, total, _ in steps), steps
    assert len({text for *_, text in steps}) == len(steps)
    assert (Path.cwd() / "ms").read_text() == "50", "the checkout is not changed"
    assert len(git(Path.cwd(), "worktree", "list").splitlines()) == 1, "work trees are removed"
    store = Store(tmp_path / "store")
    assert not [*(store.root / "bisections").iterdir()], "nothing is left to continue"
    counts = re.search(r"(\d+) probes, (\d+) launches \((\d+) of them measured\)", cli.out)
    assert counts is not None, cli.out
    probes, launches, measured = map(int, counts.groups())
    assert probes <= 4
    assert len(store.runs()) == measured
    assert launches == measured + probes + 2, "each place is launched once before"


def test_the_commit_that_made_it_faster_as_json(
    history: Callable[..., list[str]], cli: Cli
) -> None:
    commits = history(["10", "10", "10", "9", "9"])
    found = _answer(cli, 0, "--git", "good..bad")
    assert (found["outcome"], _name(found), found["noun"]) == ("found", commits[3], "commit")
    change, total = found["change"], found["total"]
    assert change["low_pct"] <= change["change_pct"] <= change["high_pct"] < -9
    assert total["change_pct"] == pytest.approx(-10)
    why = found["why"]
    assert f"git commit {commits[2][:9]} -> {commits[3][:9]}" in why["text"]


def test_the_first_of_several_changes(history: Callable[..., list[str]], cli: Cli) -> None:
    commits = history(["10", "12", "12", "9"])
    assert cli("bisect", *FEW, "--git", "good..bad", *RUN) == 0, cli.err
    made = f"{commits[1][:12]} (change 1) made the program 20.0 % slower"
    assert cli.out.startswith(made), cli.out
    rest = f"--git {commits[1][:12]}..{commits[3][:12]} (-25.0 %)"
    assert f"Other commits changed it too; to search them: {rest}." in cli.out


def test_a_part_without_a_change_is_not_named(history: Callable[..., list[str]], cli: Cli) -> None:
    commits = history(["10", "10", "12", "9"])
    assert cli("bisect", *FEW, "--git", "good..bad", *RUN) == 0, cli.err
    assert f"to search them: --git {commits[2][:12]}..{commits[3][:12]} (-25.0 %).\n" in cli.out


def test_a_spread_change_names_what_was_searched(
    history: Callable[..., list[str]], cli: Cli
) -> None:
    history(["100", "101", "102", "103", "104", "104", "104", "104", "90"])
    assert cli("bisect", *FEW, "--git", "good..bad", *RUN) == 4, cli.out
    assert cli.out.startswith("Spread: BAD is 10.0 % faster than GOOD (")
    span = r"--git \w{12}\.\.\w{12} \([+-]\d+\.\d %\)"
    found = re.search(rf"Searched: {span}\. Not searched: {span}( and {span})?\.\n", cli.out)
    assert found is not None, cli.out
    steps = re.findall(r"^\[(\d+)/(\d+)\]", cli.err, re.MULTILINE)
    assert steps and all(int(done) <= int(total) for done, total in steps), cli.err
    lines = cli.err.splitlines()
    assert not [one for one, other in itertools.pairwise(lines) if one == other]


def test_nothing_to_find(history: Callable[..., list[str]], cli: Cli) -> None:
    history(["10"] * 5)
    assert cli("bisect", *FEW, "--git", "good..bad", *RUN) == 4
    assert cli.out.startswith("Not reproducible: BAD is as fast as GOOD (")
    assert "no single commit was found: not reproducible" in cli.err


def test_commits_that_do_not_build_or_run_are_skipped(
    history: Callable[..., list[str]], cli: Cli
) -> None:
    commits = history(["10", "10", "broken", "11", "11", "unbuilt", "11", "11"])
    build = "sh -c '! grep unbuilt ms'"
    found = _answer(cli, 4, "--git", "good..bad", "--build", build)
    assert (found["outcome"], _name(found, "before"), _name(found)) == (
        "range", commits[1], commits[3],
    )  # fmt: skip
    skipped = found["skipped"]
    whys = {own["name"]: own["why"] for own in skipped}
    assert "it is broken" in whys[commits[2]]
    assert set(whys) <= {commits[2], commits[5]}
    if commits[5] in whys:
        assert "failed in" in whys[commits[5]]


@pytest.mark.parametrize(
    ("times", "end", "why"),
    [
        (["broken", "10"], "GOOD", "the program "),
        (["10", "broken"], "BAD", "the program "),
        (["10", "no number"], "BAD", "either it or "),
    ],
)
def test_an_end_that_fails(
    times: list[str],
    end: str,
    why: str,
    history: Callable[..., list[str]],
    cli: Cli,
    tmp_path: Path,
) -> None:
    commits = history(times)
    assert cli("bisect", *FEW, "--git", "good..bad", *RUN) == 1
    commit = commits[0 if end == "GOOD" else 1][:12]
    assert re.search(rf"perfpipe: {end}, {commit} \(change \d\): {why}", cli.err), cli.err
    assert len(git(Path.cwd(), "worktree", "list").splitlines()) == 1
    assert not [*(tmp_path / "store" / "bisections").iterdir()], "nothing to continue"


#: Counts launches in $COUNTS; those that $FAIL names by time and number fail.
FLAKY = f"""
ms=$(cat ms)
number=$(ls $COUNTS | grep -c "^$ms-")
touch $COUNTS/$ms-$number
case " $FAIL " in *" $ms-$number "*) echo out of memory >&2; exit 1;; esac
{PROGRAM}"""


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Let launches fail; returns the folder with a file for each launch."""

    def make(which: str) -> Path:
        counts = tmp_path / "counts"
        counts.mkdir()
        monkeypatch.setenv("COUNTS", str(counts))
        monkeypatch.setenv("FAIL", which)
        monkeypatch.setattr(sys.modules[__name__], "PROGRAM", FLAKY)
        return counts

    return make


def test_a_launch_that_fails_once_is_repeated(
    history: Callable[..., list[str]], cli: Cli, failing: Callable[[str], Path]
) -> None:
    counts = failing("10-2 11-1 12-3")
    commits = history(["10", "11", "12"])
    found = _answer(cli, 0, "--git", "good..bad")
    assert _name(found) in commits[1:]
    assert not found["skipped"]
    assert found["launches"] == len([*counts.iterdir()]) == found["measured_launches"] + 3 + 3


def test_a_launch_that_fails_twice(
    history: Callable[..., list[str]], cli: Cli, failing: Callable[[str], Path]
) -> None:
    """The place is skipped; an end that fails ends the search, which can be continued."""
    counts = failing("11-1 11-2 12-5 12-6")
    commits = history(["10", "11", "12"])
    assert cli("bisect", *FEW, "--git", "good..bad", *RUN) == 1
    assert re.search(r"BAD, \w+ \(change 2\): failed in 2 of \d launches: .*memory", cli.err)
    assert "; the same command continues from here" in cli.err
    found = _answer(cli, 4, "--git", "good..bad")
    (skipped,) = found["skipped"]
    assert skipped["name"] == commits[1]
    assert skipped["why"].startswith("failed in 2 of 3 launches: ")
    assert found["launches"] == len([*counts.iterdir()])


def test_a_workload_file_and_a_program_in_a_subdirectory(
    history: Callable[..., list[str]], cli: Cli
) -> None:
    history(["10", "10"])
    here = Path.cwd()
    (here / "deep").mkdir()
    for ms in ("10", "12"):
        (here / "deep" / "ms").write_text(ms)
        shutil.copy(here / "bench.sh", here / "deep")
        last = committed(here, ms)
    words = ("--git", "HEAD~1..HEAD")
    found = _answer(cli, 0, *words, "--cwd", "deep")
    assert _name(found) == last
    (here / "deep" / "w.yaml").write_text("version: 1\nname: w\ncommand: [sh, bench.sh]\n")
    assert cli("bisect", *FEW, *words, "--json", "deep/w.yaml") == 0, cli.err
    assert _name(json.loads(cli.out)) == last
    (here / "deep" / "w.yaml").write_text(
        "version: 1\nname: w\ncommand: [sh, bench.sh, '{n}']\nmatrix: {n: [1, 2]}\n"
    )
    assert cli("bisect", *words, "deep/w.yaml") == 2
    assert "has 2 configurations, but a bisection needs one configuration" in cli.err


def test_submodules_are_checked_out(
    history: Callable[..., list[str]], cli: Cli, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    part.mkdir()
    (part / "ms").write_text("10")
    committed(part, "fast")
    history(["10"])
    here = Path.cwd()
    git(here, "submodule", "add", str(part), "part")
    (here / "bench.sh").write_text(PROGRAM.replace("cat ms", "cat part/ms"))
    good = committed(here, "with a part")
    (part / "ms").write_text("12")
    committed(part, "slow")
    git(here / "part", "pull")
    bad = committed(here, "a slower part")
    found = _answer(cli, 0, "--git", f"{good}..{bad}")
    assert _name(found) == bad
    assert len(git(here, "worktree", "list").splitlines()) == 1


def test_the_same_command_continues(
    history: Callable[..., list[str]], cli: Cli, tmp_path: Path
) -> None:
    """Ctrl-C in the middle of a probe: what was measured is kept, and used."""
    commits = history(["10"] * 3 + ["11"] * 2)
    (Path.cwd() / "own").mkdir()
    bench = tmp_path / "bench.sh"
    bench.write_text(
        f"{PROGRAM}\nif [ $(ls $RUNS | wc -l) -gt 8 ] && mkdir {tmp_path}/stopped; then\n"
        "kill -INT $PARENT; sleep 60; fi 2> /dev/null\n"
    )
    words = [sys.executable, "-m", "perfpipe", "bisect", "--json", *FEW, "--git", "good..bad"]
    start = ["sh", "-c", 'export PARENT=$$; exec "$@"', "sh", *words, "--", "sh", str(bench)]
    runs = tmp_path / "store" / "runs"
    runs.mkdir(parents=True)
    env = {**os.environ, "RUNS": str(runs), "PYTHONPATH": str(ROOT)}
    first = subprocess.run(
        start, env=env, capture_output=True, text=True, check=False, preexec_fn=heed_signals
    )
    assert first.returncode == 128 + signal.SIGINT, first.stderr
    assert first.stderr.endswith("perfpipe: interrupted; the same command continues from here\n")
    assert len(git(Path.cwd(), "worktree", "list").splitlines()) == 1
    before = [run.run_id for run in Store(tmp_path / "store").runs() if run.status == "done"]
    env["PARENT"] = "none"
    second = subprocess.run(start, env=env, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    kept = re.search(r"continuing with (\d+) launches of an interrupted bisection", second.stderr)
    assert kept is not None, second.stderr
    assert len(before) - 2 <= int(kept[1]) <= len(before), "only a cut round is launched again"
    found = json.loads(second.stdout)
    assert _name(found) == commits[3]
    after = [run for run in Store(tmp_path / "store").runs() if run.status == "done"]
    assert len(after) - len(before) == found["measured_launches"] - int(kept[1])
    assert found["launches"] > found["measured_launches"]


def test_an_interruption_at_the_end_keeps_answer_and_launches(
    history: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Ctrl-C while the work trees are removed: by a git that sends it."""
    history(["10", "11"])
    real = shutil.which("git")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(
        '#!/bin/sh\ncase "$*" in *"worktree remove"*)\n'
        f"mkdir {tmp_path}/stopped 2> /dev/null && {{ kill -INT $PARENT; sleep 1; }};; esac\n"
        f'exec {real} "$@"\n'
    )
    (tools / "git").chmod(0o755)
    words = [sys.executable, "-m", "perfpipe", "bisect", *FEW, "--git", "good..bad", *RUN]
    start = ["sh", "-c", 'export PARENT=$$; exec "$@"', "sh", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tools}:{os.environ['PATH']}"}
    first = subprocess.run(
        start, env=env, capture_output=True, text=True, check=False, preexec_fn=heed_signals
    )
    assert first.returncode == 128 + signal.SIGINT, first.stderr
    assert first.stderr.endswith("perfpipe: interrupted; the same command continues from here\n")
    assert "(change 1)" in first.stdout, "the answer is printed before the work trees are removed"
    before = len(Store(tmp_path / "store").runs())
    second = subprocess.run(start, env=env, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[0] == first.stdout.splitlines()[0]
    assert len(Store(tmp_path / "store").runs()) == before, "nothing is launched again"
    assert not [*(tmp_path / "store" / "bisections").iterdir()]


def test_what_cannot_be_bisected(history: Callable[..., list[str]], cli: Cli) -> None:
    history(["10", "11"])
    here = Path.cwd()
    git(here, "checkout", "-b", "side", "good")
    committed(here, "on the side")
    git(here, "branch", "beside", "bad")
    git(here, "checkout", "main")
    committed(here, "on main")
    git(here, "merge", "--no-ff", "side", "-m", "merged")
    for words, sentence in (
        (("--git", "good"), "expected two commits, A..B"),
        (("--git", "good..nowhere"), "nowhere is not a commit in this repository"),
        (("--git", "good..good"), "both names are the same commit"),
        (("--git", "bad...bad"), "both names are the same commit"),
        (("--git", "bad..good"), "--git bad..good: good is older than bad: swap them"),
        (("--git", "bad...good"), "the common ancestor of bad and good is good itself"),
        (("--git", "side..beside"), "side is not an ancestor of beside; their common ancestor is"),
        (("--git", "side..main"), "side is not on the line of first parents of main"),
        (("--git", "good..bad", "--package", "a==1..2"), "give either --git GOOD..BAD or"),
        ((), "give either --git GOOD..BAD or"),
        (("--package", "a==1..2", "--build", "make"), "--build needs --git"),
        (("--git", "good..bad", "--no-index"), "--no-index needs --package"),
        (("--package", "a=1"), "expected NAME==A..B"),
        (("--package", "a==1..1"), "both versions are the same"),
    ):
        assert cli("bisect", *words, *RUN) == 2, words
        assert sentence in cli.err, cli.err
    assert cli("bisect", "--git", "good..bad") == 2
    assert cli("bisect", "--package", "a==1..2", "--", "sleep", "0") == 2
    assert "no Python interpreter to replace" in cli.err


def test_a_shallow_clone_says_so(history: Callable[..., list[str]], tmp_path: Path) -> None:
    commits = history(["10", "11", "12"])
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--depth", "1", Path.cwd().as_uri(), str(clone))
    with pytest.raises(InputError, match="git fetch --unshallow"):
        first_parents(clone, f"{commits[0]}..{commits[2]}")


def test_first_parents(history: Callable[..., list[str]]) -> None:
    commits = history(["10", "11", "12"])
    assert first_parents(Path.cwd(), "good..bad") == commits


def test_a_profile_of_both_neighbors_explains(
    history: Callable[..., list[str]],
    cli: Cli,
    profilers: Path,
    expand: Callable[[str], Path],
) -> None:
    """Stand-ins of nsys and ncu record what the program of the commit says."""
    history(["10", "60"])
    here = Path.cwd()
    link = profilers / "timeline.sqlite"
    (here / "bench.sh").write_text(f"{PROGRAM}\nln -sf $(cat seen) {link}\n")
    for name, ms in (("graph_node", "10"), ("eager_small", "60")):
        (here / "seen").write_text(str(expand(f"nsys/{name}.sqlite")))
        (here / "ms").write_text(ms)
        committed(here, name)
    found = _answer(cli, 0, "--git", "HEAD~1..HEAD", "--explain")
    why = found["why"]
    assert "launch gap" in why["text"]
    assert "CUDA graphs 100 % of the kernels -> 0 % of the kernels" in why["text"]


@pytest.fixture
def no_profiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without nsys and ncu."""
    monkeypatch.setattr(tools, "_candidates", lambda _: [])
    tools.find_tool.cache_clear()
    yield
    tools.find_tool.cache_clear()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "because both sides need a timeline (--explain records one)."),
        (("--explain",), "because there is no profiler on this machine."),
    ],
)
@pytest.mark.parametrize("command", ["bisect", "ab"])
def test_why_there_is_no_timeline(
    command: str,
    options: tuple[str, ...],
    why: str,
    history: Callable[..., list[str]],
    cli: Cli,
    no_profiler: None,
) -> None:
    history(["10", "12"])
    words = ("--rounds", "5", "--git", "good..bad", *options, *RUN)
    assert cli(command, *words) == (0 if command == "bisect" else 3), cli.err
    both = " ".join((cli.out + cli.err).split())
    assert both.count(f"Where the time went is unknown, {why}") == 1, both
    assert both.count("profiler on this machine") == len(options)
    assert both.count("--explain") == 1 - len(options)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of 1.0 to 1.2 and 1.3rc1 of a small package, the last two of them slower."""
    into = tmp_path_factory.mktemp("wheels")
    for number, ms in enumerate(("10", "10", "12", "12")):
        source = tmp_path_factory.mktemp("source")
        (source / "slowly").mkdir()
        (source / "slowly" / "__init__.py").write_text(f"MS = {ms}\n")
        version = "1.3rc1" if number == 3 else f"1.{number}"
        (source / "setup.py").write_text(
            "from setuptools import setup\n"
            f"setup(name='slowly', version='{version}', packages=['slowly'])\n"
        )
        words = [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", str(into)]
        subprocess.run(words, cwd=source, check=True, capture_output=True)
    return into


def test_the_version_that_made_it_slower(cli: Cli, wheels: Path, tmp_path: Path) -> None:
    """The program also imports a package of its own Python."""
    (tmp_path / "bench.py").write_text(
        'import click, slowly\nprint(\'{"perfpipe": "time", "ms": [%f]}\' % slowly.MS)\n'
    )
    where = ("--no-index", "--find-links", str(wheels), "--no-deps")
    program = ("--", sys.executable, "bench.py")
    found = _answer(cli, 0, "--package", "slowly==1.0..1.3rc1", *where, program=program)
    assert (found["outcome"], _name(found), found["noun"]) == ("found", "1.2", "version")
    assert found["places"] == 3
    assert "slowly 1.1 -> 1.2" in found["why"]["text"]
    assert cli("bisect", "--package", "slowly==1.0..1.9", *where, *program) == 2
    assert "pip finds no version 1.9 of slowly; did you mean" in cli.err


def test_versions_in_words() -> None:
    found = wanted("torch==2.5.0..2.6.0", ["--no-index"], pre=True, no_deps=False)
    assert (found.name, found.first, found.last) == ("torch", "2.5.0", "2.6.0")
    for text in ("torch", "torch==2.5.0", "torch==..2", "==1..2", "torch==1..."):
        with pytest.raises(InputError):
            wanted(text, [], pre=False, no_deps=False)
