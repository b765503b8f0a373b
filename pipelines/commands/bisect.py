"""perfpipe bisect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfpipe.errors import Inconclusive, InputError, TaskFailed
from perfpipe.pipelines.options import (
    WithSubject,
    json_document,
    json_option,
    program_options,
    resolve_store,
    store_option,
)
from perfpipe.visible import visible_line

if TYPE_CHECKING:
    from perfpipe.pipelines.gate.arms import Source
    from perfpipe.pipelines.gate.line import Line

#: Most rounds that compare two commits or versions.
ROUNDS = 10

#: Options that pip gets as they are given.
_PIP = ("find_links", "index_url", "extra_index_url")


@click.command("bisect", cls=WithSubject)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@click.option(
    "--git",
    "span",
    metavar="GOOD..BAD",
    help="Search the commits from GOOD to BAD, each in its own work tree: first parents only.",
)
@click.option(
    "--build",
    metavar="COMMAND",
    help="With --git: command that builds the program in each work tree.",
)
@click.option(
    "--package",
    metavar="NAME==A..B",
    help="Search the versions of a Python package, each in its own environment, which also sees "
    "the packages of the program's Python.",
)
@click.option("--find-links", multiple=True, metavar="DIR|URL", help="Passed to pip.")
@click.option("--index-url", metavar="URL", help="Passed to pip.")
@click.option("--extra-index-url", multiple=True, metavar="URL", help="Passed to pip.")
@click.option("--no-index", is_flag=True, help="Passed to pip: use only --find-links.")
@click.option("--no-deps", is_flag=True, help="Install the package without its dependencies.")
@click.option("--pre", is_flag=True, help="With --package: include pre-releases.")
@click.option(
    "--rounds",
    type=click.IntRange(min=3),
    default=ROUNDS,
    show_default=True,
    help="Maximum number of rounds that compare GOOD with BAD, and the two neighbors at the end.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Also profile the program before and after the change, to show where the time went.",
)
@click.option("--fresh", is_flag=True, help="Discard what an interrupted bisection measured.")
@program_options
@json_option("Print the answer as JSON.")
@store_option
def bisect_command(**given: Any) -> None:
    """Find the commit or package version that changed the time of a program.

    GOOD and BAD are compared first.  If they do not differ, the answer is "not reproducible".  Each
    probe then alternates launches of a commit, GOOD and BAD, in random order, until the time of the
    commit clearly matches that of GOOD or BAD.  Finally, fresh rounds compare the commit that was
    found with the one before it.  Both slowdowns and speedups are found.  Programs run without a
    profiler.

    \b
    perfpipe bisect --git v1.2..HEAD -- python bench.py
    perfpipe bisect --git v1.2..HEAD --build 'make -j8' --explain -- ./build/bench
    perfpipe bisect --package torch==2.5.0..2.7.0 -- python train.py
    perfpipe bisect --package mylib==1.0..1.4 --no-index --find-links wheels/ -- python bench.py
    perfpipe bisect --git main~40..main bench/w.yaml

    Commits that cannot be built, or in which the program fails, are skipped.  Your checkout is not
    changed.  If the command is interrupted, the same command continues from the launches so far.

    Exit codes: 0 one commit or version was found, 1 GOOD or BAD fails, 4 no single one was found
    (not reproducible, undecided, spread over many, or some could not be measured).
    """
    from perfpipe.analysis.gate.bisect import Outcome
    from perfpipe.pipelines.gate import bisect_answer
    from perfpipe.pipelines.gate.arms import source_of
    from perfpipe.pipelines.signals import launching

    span, package = given["span"], given["package"]
    if (span is None) == (package is None):
        raise InputError("give either --git GOOD..BAD or --package NAME==A..B")
    _check_options(given)
    program, elsewhere = given["program"], span is not None
    source = source_of(
        given["workload"], program, env=given["env"], cwd=given["cwd"], elsewhere=elsewhere
    )
    with launching(), ExitStack() as records, ExitStack() as trees:
        line = _line(source, given, trees)
        directory = records.enter_context(_record(line, source, given))
        found, why = _found(line, source, directory, given)
        if given["as_json"]:
            click.echo(json_document(**bisect_answer.as_data(found, line, why)))
        else:
            _print(found, line, why)
    if found.answer.outcome != Outcome.FOUND:
        raise Inconclusive(f"no single {line.noun} was found: {found.answer.outcome}")


def _check_options(given: dict[str, Any]) -> None:
    """Raise InputError for options of --git that are given with --package, or the reverse."""
    if given["build"] is not None and given["span"] is None:
        raise InputError("--build needs --git")
    if given["package"] is None:
        for name in (*_PIP, "no_index", "no_deps", "pre"):
            if given[name]:
                raise InputError(f"--{name.replace('_', '-')} needs --package")


def _line(source: Source, given: dict[str, Any], stack: ExitStack) -> Line:
    """Return what to search; work trees and environments are removed with the stack."""
    from perfpipe.pipelines.console import say
    from perfpipe.pipelines.gate.first_parents import commits, first_parents
    from perfpipe.pipelines.gate.versions import versions, wanted
    from perfpipe.pipelines.git import git_facts

    if given["span"] is not None:
        names = first_parents(source.directory, given["span"])
        facts = git_facts(source.directory)
        if facts is not None and facts.dirty:
            say("uncommitted changes of this checkout are not part of the search")
        return stack.enter_context(commits(source, names, given["build"]))
    finding = ["--no-index"] if given["no_index"] else []
    for name in _PIP:
        values = given[name] if isinstance(given[name], tuple) else filter(None, [given[name]])
        for value in values:
            here = Path(value).resolve()
            finding += [f"--{name.replace('_', '-')}", str(here) if here.exists() else value]
    package = wanted(given["package"], finding, pre=given["pre"], no_deps=given["no_deps"])
    return stack.enter_context(versions(source, package))


@contextmanager
def _record(line: Line, source: Source, given: dict[str, Any]) -> Iterator[Path]:
    """Claim the directory of the record, which is removed in the end, after all else.

    If the search ends early, the record stays, and the error says that it does.
    """
    from perfpipe import bisectrecord
    from perfpipe.pipelines.claim import claimed
    from perfpipe.pipelines.signals import Ended

    what = {
        "line": [line.noun, given["package"], *line.names],
        "program": [
            *source.command, source.workload().model_dump(mode="json"), str(source.directory)
        ],
        "build": given["build"],
    }  # fmt: skip
    directory = bisectrecord.directory_of(resolve_store(given["store_path"]).root, what)
    with bisectrecord.leaving(directory), claimed(directory):
        if given["fresh"]:
            bisectrecord.forget(directory)
        try:
            yield directory
        except Ended as end:
            end.advice = _advice(directory)
            raise
        except TaskFailed as error:
            raise TaskFailed(f"{error}{_advice(directory)}") from error
        bisectrecord.forget(directory)


def _advice(directory: Path) -> str:
    """Return how to continue, if anything was measured."""
    from perfpipe import bisectrecord

    return "; the same command continues from here" if bisectrecord.read(directory).rounds else ""


def _found(line: Line, source: Source, directory: Path, given: dict[str, Any]) -> Any:
    """Search, and return what was found, with the explanation of the change."""
    from perfpipe.analysis.gate.bisect import expected_stages
    from perfpipe.analysis.gate.limits import limits_of
    from perfpipe.pipelines.console import progress
    from perfpipe.pipelines.gate.arms import arm_of
    from perfpipe.pipelines.gate.bisect import Bisection, explained
    from perfpipe.pipelines.gate.calibrate import calibration_for

    store = resolve_store(given["store_path"])
    limits = limits_of(calibration_for(arm_of("program", source, []), store))
    stages = sum(expected_stages(len(line.names) - 1).values())
    with progress(f"bisect {source.workload().name}", stages) as steps:
        bisection = Bisection(line, store, directory, steps, rounds=given["rounds"], limits=limits)
        found = bisection.find()
        comparison = explained(bisection, found, profiles=given["explain"])
    return found, comparison and comparison.why


def _print(found: Any, line: Line, why: Any) -> None:
    from perfpipe.pipelines.gate import bisect_answer
    from perfpipe.pipelines.gate.compare import print_why

    click.echo(visible_line(f"{bisect_answer.headline(found, line)}."))
    for note in bisect_answer.notes(found, line):
        click.echo(visible_line(note))
    if why is not None:
        print_why(why)
