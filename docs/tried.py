"""Writes what advice promised, and what it gained: tried.md, case-studies.md, a part of README.md.

python docs/tried.py                    writes them from the trials in docs/trials
python docs/tried.py add STORE TRIAL    adds a trial of a store, without paths and names
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cases
import click

from perfpipe.analysis.trying.outcomes import (
    RESULTS,
    Outcome,
    exceeded,
    launched,
    median_gains,
    saved,
    start_up,
)
from perfpipe.decoding import decode
from perfpipe.errors import PerfpipeError
from perfpipe.ingest.masking import mask_value, names_in
from perfpipe.store import Store
from perfpipe.trialrecord import LeverTrial, StackTrial, Trial, read_all, write
from perfpipe.units import counted, format_bytes, format_ns

DOCS = Path(__file__).resolve().parent

_NOTHING: Mapping[str, Mapping[str, str]] = {}

#: A gain that is worth a change, %.
_LARGE_PCT = 20

HEAD = """# Promised and measured

Each table is a trial of [`perfpipe try`](trying.md) on a program: the upper bound that a finding
stated (promised), the time that the lever saved with its interval (measured), and whether the
results of the program stay equal. Gains are in % of the unchanged program; bounds are in % of the
whole that the table names. A stack is the levers that help together, measured on fresh launches.
"By hand" is what changes made by hand gained in the same program on the same model of GPU.
`python docs/tried.py add STORE TRIAL` adds a trial.
"""


def committed(root: Path = DOCS) -> list[Trial]:
    """Return the trials of the page, oldest first."""
    return read_all(root)


def by_hand(root: Path = DOCS) -> dict[str, dict[str, str]]:
    """Return what is known of programs besides their trials, by the id of the trial."""
    found: dict[str, dict[str, str]] = tomllib.loads(
        (root / "trials" / "by_hand.toml").read_text(encoding="utf-8")
    )
    return found


def page(trials: Sequence[Trial], known: Mapping[str, Mapping[str, str]] = _NOTHING) -> str:
    """Return the page; `known` is what `by_hand` returns."""
    lines = [HEAD, *summary(trials), "", "## Bounds that a measurement exceeded", ""]
    lines += _exceeded(trials, known)
    if trials:
        lines += ["", "## Levers", "", *_levers(trials)]
    for trial in trials:
        lines += ["", *_trial(trial, known.get(trial.trial_id, {}))]
    return "\n".join(lines).rstrip() + "\n"


def summary(trials: Sequence[Trial]) -> list[str]:
    """Return the three lines of the summary; one if there is no trial."""
    if not trials:
        return ["- No trial has been added to `docs/trials` yet."]
    gains = [_pct(trial) for trial in trials]
    large = sum(gain >= _LARGE_PCT for gain in gains)
    gpus = " and ".join(sorted({trial.gpu or "an unknown GPU" for trial in trials}))
    every = [own for trial in trials for own in launched(trial)]
    helped = sum(Outcome.of(own).helps for own in every)
    differ = sum(own.verdict == "gain" and own.results == "differ" for own in every)
    bounded = sum(own.exceeds_bound is not None for own in every)
    over = len(exceeded(trials))
    return [
        f"- {counted(len(trials), 'trial')} on {gpus}: {large} of {len(trials)} gained at least "
        f"{_LARGE_PCT} % with equal results; the median gain is {statistics.median(gains):.1f} %.",
        f"- {counted(len(every), 'launched lever')}: {helped} saved time with equal results, and "
        f"{differ} saved time but changed the results.",
        f"- {counted(bounded, 'measured bound')}: {over} exceeded.",
    ]


def with_block(text: str, name: str, lines: Iterable[str]) -> str:
    """Return a page with lines between the markers of a block; raises ValueError without them."""
    begins, ends = f"<!-- {name}: written by docs/build.py -->", f"<!-- {name}: end -->"
    before, begin, rest = text.partition(f"{begins}\n")
    _, end, after = rest.partition(f"{ends}\n")
    if not begin or not end:
        raise ValueError(f"the markers {begins} and {ends} are missing")
    return "\n".join([f"{before}{begins}", *lines, f"{ends}\n{after}"])


def _pct(trial: Trial) -> float:
    """Return the gain of a trial with equal results, in %; 0 without one."""
    stack = trial.stack
    return (stack.gained.gain_pct or 0.0) if stack and Outcome.of(stack).helps else 0.0


def _exceeded(trials: Sequence[Trial], known: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    found = exceeded(trials)
    if not found:
        yield "None."
    for trial, own in found:
        alone = own.in_steps.low_pct is not None
        measured = saved(own.in_steps if alone else own.gained)
        why = known.get(trial.trial_id, {}).get("exceeded")
        yield (
            f"- {_code(trial.program)} on {trial.gpu}, {_code(own.name)}: at most "
            f"{own.bound_pct:.1f} % of {own.bound_of or 'the step'} was promised, {measured}"
            f"{' in the steps alone' if alone else ''} was measured ({trial.trial_id})."
            f"{' ' + why + '.' if why else ''}"
        )


def _levers(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a table of levers: how often each was launched, and what it promised and gained."""
    yield "| lever | programs | helped | promised (median) | measured (median) |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for lever in median_gains(trials):
        promised = "" if lever.bound_pct is None else f"{lever.bound_pct:.1f} %"
        measured = "" if lever.gain_pct is None else f"{lever.gain_pct:.1f} %"
        cells = (_code(lever.name), str(lever.programs), str(lever.helped), promised, measured)
        yield f"| {' | '.join(cells)} |"


def _trial(trial: Trial, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the part of the page about a trial."""
    yield f"## {trial.program}, {trial.gpu or 'GPU unknown'}"
    yield ""
    if "program" in known:
        yield from (f"Program: {known['program']}.", "")
    made = trial.provenance
    version = f"perfpipe {made.get('perfpipe', 'of unknown version')}"
    version += f" ({made['commit']})" if "commit" in made else ""
    plain = "not measured"
    if trial.plain_ms is not None:
        plain = f"{format_ns(1e6 * trial.plain_ms)} a {trial.unit}"
    yield (
        f"{_code(shlex.join(trial.words) or trial.program)}; {trial.at[:10]}, {version}. "
        f"Without changes: {plain}, {counted(trial.plain_launches, 'launch')}; compared with "
        f"itself: {saved(trial.aa) or 'not measured'}, results {RESULTS[trial.aa_results]}."
    )
    yield ""
    yield "| lever | applied to | promised | measured | results | memory | start-up | outcome |"
    yield "| --- | --- | ---: | ---: | --- | ---: | ---: | --- |"
    for own in launched(trial):
        yield _row(own, trial.unit)
    yield ""
    yield from _stack(trial.stack)
    if "by_hand" in known:
        yield from ("", f"By hand: {known['by_hand']}.")


def _row(own: LeverTrial, unit: str) -> str:
    promised = f"{own.bound_pct:.1f} % of {own.bound_of or 'the step'}" if own.bound_pct else ""
    measured = own.gained.gain_pct is not None
    cells = (
        _code(own.name),
        "; ".join(own.applied),
        promised,
        saved(own.gained),
        RESULTS[own.results] if measured else "",
        format_bytes(own.memory_bytes) if own.memory_bytes else "",
        start_up(own, unit),
        _outcome(own),
    )
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _outcome(own: LeverTrial) -> str:
    """Return the verdict with its reason."""
    outcome = Outcome.of(own)
    if outcome.helps:
        return "helps"
    why = own.why or own.results_why
    return f"{outcome.label}: {why}" if why else outcome.label


def _stack(stack: StackTrial | None) -> Iterator[str]:
    if stack is None:
        yield "Stack: none, because no lever helps."
        return
    names = " + ".join(stack.levers)
    helps = Outcome.of(stack).helps
    why = "" if helps else f" ({stack.verdict})"
    yield (
        f"Stack: **{names}**, {saved(stack.gained) or 'not measured'}, "
        f"results {RESULTS[stack.results]}, {counted(stack.launches, 'fresh launch')}{why}."
    )
    if helps and stack.manual:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", stack.manual)), default=0))
        yield from ("", f"{fence}python", *stack.manual.splitlines(), fence)


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def add(store: Path, name: str, root: Path = DOCS) -> Path:
    """Write a trial of a store, masked, beside the page; returns its file.

    `name` is its id, or the beginning of its id.  Raises ValueError if the store has no or several
    such trials.
    """
    found = [own for own in Store(store).trials() if own.trial_id.startswith(name)]
    if len(found) != 1:
        raise ValueError(f"{store}: {counted(len(found), 'trial')} with the id {name}")
    content = json.loads(json.dumps(vars(found[0]), default=vars))
    names = names_in(_texts(content), getpass.getuser(), socket.gethostname())
    masked = mask_value(content, names) | {"trial_id": found[0].trial_id}
    masked["provenance"] = {**_commit(), **masked["provenance"]}
    trial: Trial = decode(Trial, masked)
    return write(root, trial)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of JSON data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _texts(item))


def _commit() -> dict[str, str]:
    """Return the commit of this checkout, if it is one."""
    words = ["git", "-C", str(DOCS), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": done.stdout.strip()}


def pages(trials: Sequence[Trial]) -> dict[Path, str]:
    """Return the generated text of the page and of the README, by file."""
    readme = DOCS.parent / "README.md"
    text = with_block(readme.read_text(encoding="utf-8"), "tried", summary(trials))
    told = cases.cases(trials)
    return {
        DOCS / "tried.md": page(trials, by_hand()),
        DOCS / "case-studies.md": cases.page(told, by_hand()),
        readme: with_block(text, "cases", cases.table(told, "docs/case-studies.md")),
    }


def main(words: Iterable[str]) -> int:
    """Add a trial if asked to, then write the pages; returns the exit code."""
    match list(words):
        case []:
            pass
        case ["add", store, name]:
            try:
                click.echo(add(Path(store), name))
            except (PerfpipeError, ValueError) as error:
                click.echo(error, err=True)
                return 2
        case _:
            click.echo(__doc__, err=True)
            return 2
    for path, text in pages(committed()).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
