"""The first screen of an autotuning run: its winner, and whether that is shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from perfpipe.analysis.history import History, Trial
from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.report.opening import steps
from perfpipe.analysis.report.opening.gpus import reports_of
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.opening.sweeps import point_of, reach_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.search_gain import Gain, gains
from perfpipe.analysis.search_story import generations
from perfpipe.analysis.thresholds import thresholds
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Action, Fact, Finding, Source, Tile

#: The technique that a search is.
_FOLLOWED = "triton_config"

#: Parameters of the winner that the sentence names.
_NAMED = 3


def search_of(scope: Scope) -> Part | None:
    """Return the winner of a search, against the default."""
    history, run = scope.history, scope.run
    if history is None or run is None:
        return None
    source = Source("tuning", (run.run_id,))
    best = history.best
    if best is None:
        text = f"None of {counted(len(history.trials), 'configuration')} gave a valid result"
        return Part(Fact("", text, source))
    tiles = _tiles(scope, history, best, source)
    fact = Fact("", _sentence(scope, history, best), source)
    traced = reports_of(steps.of_task(scope, best.index))
    about = ""
    if traced:
        done = sum(task.done for task in run.tasks)
        about = f"{done} of {len(run.tasks)} configurations, findings on the fastest"
    lead = "Tuning: all valid configurations"
    return Part(fact, tuple(tiles), lead, reports=traced, about=about)


def open_of(scope: Scope, findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return the findings whose advice the search has not followed already."""
    if scope.history is None:
        return findings
    followed = techniques()[_FOLLOWED].technique
    return [finding for finding in findings if finding.advice != followed]


def next_of(scope: Scope) -> Iterator[Action]:
    """Yield what decides whether the winner is faster than the default, unless that is known."""
    history, run = scope.history, scope.run
    best = history.best if history is not None else None
    if history is None or run is None or best is None:
        return
    if history.default in (None, best) or gains(history)[best.index].interval_pct is not None:
        return
    command = f"perfpipe run {shlex.quote(run.workload_file)} --set launches=5"
    yield Action(
        "Launch the fastest and the default again",
        "Each had one launch, and launches differ by a few percent; five of each give the "
        "difference an interval",
        "",
        command if run.workload_file else "",
        "",
        Source("tuning", (run.run_id,)),
    )


def _sentence(scope: Scope, history: History, best: Trial) -> str:
    """Return what the winner reaches, how it compares with the default, and what confirms it."""
    point = point_of(scope, best.index)
    reaches = f"takes {_time(best)}"
    if point is not None and point.pct is not None:
        reaches = f"reaches {point.rate} ({point.pct:.0f} % {point.of})"
    of = f"of {len(history.trials)}"
    if history.default is None:
        return f"The fastest {of} configurations {reaches}: {_chosen(best, None)}"
    if best is history.default:
        return f"The default ({_time(best)}) is the fastest {of} configurations, and {reaches}"
    gain = gains(history)[best.index]
    chosen = _chosen(best, history.default)
    against = f"{_time(best)} against {_time(history.default)} by default"
    if gain.interval_pct is None:
        noise = ", within noise" if _is_noise(history, best) else "; one launch each"
        return f"The fastest {of} {reaches}: {chosen}; {against}{noise}"
    return f"The fastest {of} {reaches}: {chosen}; {against}, {_verdict(gain)}"


def _verdict(gain: Gain) -> str:
    """Return the verdict on a gain; only one that was launched again is free of selection."""
    return gain.verdict if gain.confirmed else f"{gain.verdict}, but not confirmed"


def _is_noise(history: History, best: Trial) -> bool:
    """Return whether the samples of one launch vary by as much as the winner gains, or nearly."""
    spreads = [t.spread_pct for t in (best, history.default) if t and t.spread_pct is not None]
    least = max([thresholds()["compare.drift_pct"], *spreads])
    return abs(history.gain_over_default_pct() or 0) <= least


def _chosen(best: Trial, default: Trial | None) -> str:
    """Return the parameters in which the winner differs from the default."""
    own = [
        f"{name}={value}"
        for name, value in best.params.items()
        if default is None or default.params.get(name) != value
    ]
    return " ".join(own[:_NAMED]) + (" …" if own[_NAMED:] else "")


def _time(trial: Trial) -> str:
    return format_ns((trial.time_ms or 0) * 1e6)


def _tiles(scope: Scope, history: History, best: Trial, source: Source) -> Iterator[Tile]:
    default = history.default
    spread = f"sample spread {best.spread_pct:.1f} %" if best.spread_pct is not None else ""
    yield Tile("Fastest", _time(best), spread or best.label, source)
    if default is not None and default.time_ms and best is not default:
        gain = gains(history)[best.index]
        note = f"default {_time(default)}; "
        if gain.interval_pct is None:
            noise = "within noise for " if _is_noise(history, best) else ""
            note += f"{noise}one launch each; --set launches=5 decides"
        else:
            low, high = gain.interval_pct
            note += f"95 % interval {low:.1f} to {high:.1f} %, {_verdict(gain)}"
        pct = history.gain_over_default_pct() or 0
        yield Tile("Faster than the default", f"{pct:+.1f} %", note, source)
    yield from reach_of(scope, best.index)
    rounds = generations(history)
    valid = len(history.worked)
    note = f"{counted(len(rounds), 'generation')}, {len(history.trials) - valid} rejected"
    yield Tile("Tried", str(len(history.trials)), note, source)
