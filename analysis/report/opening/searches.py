"""The first screen of an autotuning run: its winner, and whether that is shown."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.history import History, Trial
from perfpipe.analysis.report.opening.parts import Part
from perfpipe.analysis.report.opening.sweeps import reach_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.search_gain import gains
from perfpipe.analysis.search_story import generations
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Fact, Source, Tile

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
    return Part(
        Fact("", _sentence(history, best), source), tuple(tiles), "Tuning: all valid configurations"
    )


def _sentence(history: History, best: Trial) -> str:
    """Return how the winner compares with the default, and whether launches confirm it."""
    of = f"of {len(history.trials)}"
    if history.default is None:
        return f"The fastest {of} configurations takes {_time(best)}: {_chosen(best, None)}"
    if best is history.default:
        return f"The default ({_time(best)}) is the fastest {of} configurations"
    gain = gains(history)[best.index]
    faster = f"The fastest {of} takes {_time(best)}, {-100 * gain.change.ratio:.1f} % less"
    faster += f" than the default: {_chosen(best, history.default)}"
    if gain.interval_pct is None:
        return f"{faster}; unreplicated, so run both again"
    return f"{faster}; {gain.verdict}"


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
            note += "one run of each is not conclusive (use --set launches=5)"
        else:
            low, high = gain.interval_pct
            note += f"95 % interval {low:.1f} to {high:.1f} %, {gain.verdict}"
        pct = history.gain_over_default_pct() or 0
        yield Tile("Faster than the default", f"{pct:+.1f} %", note, source)
    yield from reach_of(scope, best.index)
    rounds = generations(history)
    valid = len(history.worked)
    note = f"{counted(len(rounds), 'generation')}, {len(history.trials) - valid} rejected"
    yield Tile("Tried", str(len(history.trials)), note, source)
