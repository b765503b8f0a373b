"""The page of case studies: what a bound promised, the change, and what it gained."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfpipe.analysis.trying.outcomes import RESULTS, Outcome, launched, saved
from perfpipe.trialrecord import LeverTrial, Trial
from perfpipe.units import counted, format_ns

DOCS = Path(__file__).resolve().parent

HEAD = """# Case studies

Five programs, as `perfpipe try` found and left them: the verdict on the timeline, the bound that a
finding stated (promised), the change, and what it gained on fresh launches (measured), with the
95 % interval. "By hand" is what we reached by changing the program ourselves, in other launches on
the same model of GPU. All figures come from the trials in `docs/trials`; [promised and
measured](tried.md) has every trial.
"""


@dataclass(frozen=True)
class Case:
    """A trial to tell."""

    trial: Trial
    title: str
    lesson: str

    @property
    def lever(self) -> LeverTrial:
        """The lever with the largest bound, of those in the stack if there is one."""
        stack = self.trial.stack
        every = [own for own in launched(self.trial) if not stack or own.name in stack.levers]
        return max(every, key=lambda own: own.bound_pct or 0.0)

    @property
    def change(self) -> str:
        """The levers that the headline figure is about."""
        stack = self.trial.stack
        return " + ".join(stack.levers) if stack else self.lever.name

    @property
    def named(self) -> str:
        """The lever that the bound is about, if the change has several."""
        return f" (`{self.lever.name}`)" if self.change != self.lever.name else ""

    @property
    def measured(self) -> str:
        """The change of time with its interval."""
        stack = self.trial.stack
        return saved(stack.gained if stack else self.lever.gained)


def cases(trials: Sequence[Trial], root: Path = DOCS) -> list[Case]:
    """Return the cases of trials/cases.toml in order; raises KeyError for an unknown trial."""
    told = tomllib.loads((root / "trials" / "cases.toml").read_text(encoding="utf-8"))
    known = {trial.trial_id: trial for trial in trials}
    return [Case(known[key], own["title"], own["lesson"]) for key, own in told.items()]


def table(found: Sequence[Case], page: str = "") -> Iterator[str]:
    """Yield the table of what was promised and measured; `page` is where the links lead."""
    yield "| case | largest part of the step | change | promised | measured | results |"
    yield "| --- | --- | --- | ---: | ---: | --- |"
    for case in found:
        stack = case.trial.stack
        cells = (
            f"[{case.title}]({page}#{_anchor(case.title)})",
            _largest(case.trial.diagnosis),
            f"`{case.change}`",
            f"{_promised(case.lever)}{case.named}",
            case.measured,
            RESULTS[stack.results if stack else case.lever.results],
        )
        yield f"| {' | '.join(cells)} |"


def page(found: Sequence[Case], known: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page; `known` is what changes by hand gained, by the id of the trial."""
    lines = [HEAD, *table(found)]
    for case in found:
        lines += ["", *_case(case, known[case.trial.trial_id])]
    return "\n".join(lines) + "\n"


def _case(case: Case, known: Mapping[str, str]) -> Iterator[str]:
    trial, stack, lever = case.trial, case.trial.stack, case.lever
    cost = f"The trial took {counted(trial.launches, 'launch')} and {trial.seconds:.0f} s."
    yield f"## {case.title}"
    yield ""
    yield f"**Program.** {_capital(known['program'])}, on {trial.gpu}: `{shlex.join(trial.words)}`"
    yield ""
    yield f"**Verdict.** {trial.diagnosis}."
    yield ""
    yield f"**Promised.** {_capital(lever.title)} (`{lever.name}`): {_promised(lever)} of the step."
    yield ""
    if stack and Outcome.of(stack).helps:
        yield "**Change.**"
        yield from ("", "```python", *stack.manual.splitlines(), "```", "")
        times = f"{_time(stack.plain_ms)} -> {_time(stack.ms)} a {trial.unit}"
        launches = counted(stack.launches, "fresh launch")
        yield (
            f"**Measured.** {case.measured}, {times}, on {launches}. "
            f"Results {RESULTS[stack.results]}: {_small(stack.results_why)} {cost}"
        )
    else:
        yield "**Change.** None: no lever helped."
        yield ""
        tried = "; ".join(
            f"`{own.name}` {saved(own.gained)}, {Outcome.of(own).label}" for own in launched(trial)
        )
        plain = f"{_time(trial.plain_ms)} a {trial.unit} without changes"
        yield f"**Measured.** {plain}. {tried}. {cost}"
    if "by_hand" in known:
        yield from ("", f"**By hand.** {known['by_hand']}.")
    yield from ("", f"**Lesson.** {case.lesson}")


def _promised(own: LeverTrial) -> str:
    return "" if own.bound_pct is None else f"at most {own.bound_pct:.1f} %"


def _largest(diagnosis: str) -> str:
    """Return the largest part of a step, as its verdict has it: '77 % host-bound idle time'."""
    return diagnosis.partition("): ")[2].partition(";")[0]


def _time(ms: float | None) -> str:
    return "unknown" if ms is None else format_ns(1e6 * ms)


def _capital(text: str) -> str:
    """Return a text with a capital, unless its first word is the name of a file."""
    first = text.partition(" ")[0]
    return text if "." in first or "/" in first else text[:1].upper() + text[1:]


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def _anchor(title: str) -> str:
    """Return the anchor of a heading of plain words."""
    return title.lower().replace(" ", "-")
