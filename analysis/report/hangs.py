"""Which rank of a job that hangs the others wait for, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import records_of
from perfpipe.analysis.thresholds import thresholds
from perfpipe.database import in_list
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Fact, Source

#: Kind of reports of a job that hangs.
KIND = "hang"

#: Views that are read here.
VIEWS = (
    "hang_waits",
    "hang_ranks",
    "hang_mismatches",
    "hang_drifts",
    "ras_differences",
    "ras_states",
)

#: Causes that are stated, and ranks that a sentence describes one by one.
_MOST, _NAMED = 3, 4

Row = Mapping[str, Any]

#: What is stated of a call, by its kind in hang_waits, in the order in which kinds are stated; and
#: what to do next.
_SAYS = {
    "mismatch": "The two ranks of {call} disagree on its size or data type.",
    "never enqueued": "{Idle} never enqueued {call}, in which {waiting}{site}.",
    "deadlock": "{Cycle} wait for each other: {each}.",
    "no dump": "{Waiting} in {call}{site}.",
    "unknown peer": "{Waiting} in sends and receives of {group}{site} that the dumps do not list.",
    "partly finished": "{Finished} finished {call}, in which {waiting}{site}.",
    "not started": "All {ranks} enqueued {call}{site}, and it has not started on {unstarted}.",
    "running": "On all {ranks}, {call} started{site}, and it does not end.",
    "enqueued": "All {ranks} enqueued {call}{site}, and it does not end.",
}

NEXT = {
    "mismatch": "Compare these lines, and what decides on each rank whether it executes them.",
    "never enqueued": (
        "Look at the host of {idle}: its log, and 'perfpipe attach PID' or 'py-spy dump' while the "
        "job hangs."
    ),
    "deadlock": (
        "Call collectives in the same order on every rank; put the sends and receives of a rank "
        "into one batch_isend_irecv."
    ),
    "no dump": "Look at the log of {unknown}: a rank that crashed or was stopped writes no dump.",
    "unknown peer": "Increase TORCH_NCCL_TRACE_BUFFER_SIZE, the number of calls that dumps list.",
    "partly finished": "Query NCCL RAS (ncclras -v), and check links and Xid errors of the GPUs.",
    "not started": (
        "Look for GPU work before this call on {unstarted} that does not end, such as a kernel or "
        "a call of another library."
    ),
    "running": "Check the network and the GPUs: ncclras -v, nvidia-smi nvlink -s, Xid errors.",
    "enqueued": (
        "Set TORCH_NCCL_ENABLE_TIMING=1, so that dumps show on which ranks calls start, and query "
        "NCCL RAS (ncclras -v)."
    ),
}

#: For calls of gloo, which run on the host.
_NEXT_ON_HOST = "Check the network between the ranks, and look at their hosts with 'py-spy dump'."

_SHIFTS = {
    "skipped": "skipped a call of the others: call #{n} there is like call #{m} of the others",
    "extra": "made an additional call: call #{m} there is like call #{n} of the others",
}


def statements_of(scope: Scope) -> Iterator[Fact]:
    """Yield which rank the others wait for; nothing without dumps and outputs of RAS."""
    if scope.kinds.get(KIND):
        yield from statements(scope, ranks_of(scope), waits_of(scope))


def statements(scope: Scope, ranks: Sequence[Row], waits: Sequence[Row]) -> Iterator[Fact]:
    """Yield what `statements_of` yields, from the rows of hang_ranks and hang_waits."""
    for text, view in (*_dumps(scope, ranks, waits), *_ras(scope)):
        yield Fact("", text, Source(view, scope.reports))


def ranks_of(scope: Scope) -> list[Row]:
    """Return the rows of hang_ranks; none without dumps."""
    return _records(scope, "hang_ranks", "report_id, rank")


def waits_of(scope: Scope) -> list[Row]:
    """Return the rows of hang_waits."""
    return _records(scope, "hang_waits", "waiting DESC, since_ns, call")


def causes_of(waits: Sequence[Row]) -> list[Row]:
    """Return the calls in which ranks wait because of these calls themselves; of a cycle, one.

    Calls behind others, and collectives in hang_mismatches, are not among them.
    """
    found: dict[object, Row] = {}
    for row in waits:
        if row["kind"] != "behind" and (row["kind"], row["source"]) != ("mismatch", None):
            found.setdefault((row["report_id"], row["cycle"] or row["call"]), row)
    return sorted(found.values(), key=lambda row: [*_SAYS].index(row["kind"]))


def _records(scope: Scope, view: str, order: str) -> list[Row]:
    sql = f"SELECT * FROM {view} WHERE report_id IN {in_list(scope.reports)} ORDER BY {order}"
    return [*records_of(scope.con, sql)]


def _dumps(scope: Scope, ranks: Sequence[Row], waits: Sequence[Row]) -> Iterator[tuple[str, str]]:
    if not ranks:
        return
    differ = _records(scope, "hang_mismatches", "report_id, group_id")
    causes = causes_of(waits)
    for row in differ[:_MOST]:
        yield _mismatch(row), "hang_mismatches"
    known: set[str] = set()
    for row in causes[:_MOST]:
        said = [text for text in _cause(scope, row, waits, ranks) if text not in known]
        known |= {*said}
        yield " ".join(said), "hang_waits"
    if (more := len(causes) - _MOST) > 0:
        yield f"Ranks wait in {counted(more, 'further call')}.", "hang_waits"
    if not differ and not any(row["state"] == "waits" for row in ranks):
        yield _nothing(ranks), "hang_ranks"
    lost = [row["rank"] for row in ranks if row["state"] == "no dump"]
    if lost and not any(row["unknown_ranks"] for row in causes[:_MOST]):
        yield f"{_first(_listed(lost))} left no dump.", "hang_ranks"


def _nothing(ranks: Sequence[Row]) -> str:
    dumped = [row for row in ranks if row["calls"] is not None]
    calls = counted(sum(row["calls"] for row in dumped), "call")
    return f"No rank waits: {calls} in the dumps of {counted(len(dumped), 'rank')} are finished."


def _mismatch(row: Row) -> str:
    """Return how the calls of ranks differ; without a majority, nobody is the odd one out."""
    others = row["ranks"] - row["most"] - row["further"]
    text = (
        f"Ranks make different calls as #{row['sequence']} of {row['group_name']}: "
        f"{_ranks(row['most_ranks'])} {_calls(row['most'])} {row['most_call']}"
        f"{_at(row['most_site'])}, {_ranks(row['other_ranks'])} {_calls(others)} "
        f"{row['other_call']}{_at(row['other_site'])}"
    )
    if row["further"]:
        text += f", {counted(row['further'], 'rank')} another one"
    if row["shift"]:
        did = _SHIFTS[row["shift"]].format(n=row["sequence"], m=row["sequence"] + 1)
        text += f". Probably, {_ranks(row['other_ranks'])} {did}"
        if row["most"] == others:
            other = {"skipped": "made an additional one", "extra": "skipped one"}[row["shift"]]
            text += f"; or {_ranks(row['most_ranks'])} {other}"
    return f"{text}. {NEXT['mismatch']}"


def _cause(scope: Scope, row: Row, waits: Sequence[Row], ranks: Sequence[Row]) -> Iterator[str]:
    """Yield the sentences about a call in which ranks wait."""
    own = {rank["rank"]: rank for rank in ranks if rank["report_id"] == row["report_id"]}
    names = _names(row) | _cycle(row, waits, own)
    yield _SAYS[row["kind"]].format(**names)
    if row["kind"] == "never enqueued":
        yield from _idle(scope, row, own)
    yield from _times(row)
    if row["older"]:
        yield (
            "Ranks may wait in an older call, which was overwritten in the dumps: increase "
            "TORCH_NCCL_TRACE_BUFFER_SIZE."
        )
    if row["unknown_ranks"]:
        lost = all(own[rank]["state"] == "no dump" for rank in _unfolded(row["unknown_ranks"]))
        dump = "no dump" if lost else "no dump, or one of active calls alone"
        yield f"{names['Unknown']} left {dump}: whether the call was enqueued there is unknown."
    on_host = row["backend"] == "gloo" and row["kind"] in ("enqueued", "partly finished")
    yield _NEXT_ON_HOST if on_host else NEXT[row["kind"]].format(**names)


def _names(row: Row) -> dict[str, str]:
    """Return what sentences about a call may contain."""
    ranks = counted(row["ranks"], "rank")
    if row["source"] is not None:
        call = f"the transfer from rank {row['source']} to rank {row['target']}"
        call += f" in {row['group_name']}"
    else:
        least = "at least " if row["ranks_from"] == "calls" else ""
        call = f"{row['operation']} #{row['sequence']} of {row['group_name']} ({least}{ranks})"
    number = row["waiting"]
    waiting = f"{counted(number, 'rank')} {'waits' if number == 1 else 'wait'}"
    names = {"call": call, "ranks": ranks, "waiting": waiting, "site": _at(row["site"])}
    names["group"] = row["group_name"]
    for name in ("idle", "unknown", "finished", "unstarted"):
        names[name] = _ranks(row[f"{name}_ranks"])
    return names | {_first(name): _first(text) for name, text in names.items()}


def _cycle(row: Row, waits: Sequence[Row], own: Mapping[int, Row]) -> dict[str, str]:
    """Return the ranks that wait in the calls of a cycle, and what each of them waits in."""
    if row["cycle"] is None:
        return {}
    inside = [
        wait
        for wait in waits
        if (wait["report_id"], wait["cycle"]) == (row["report_id"], row["cycle"])
    ]
    members = sorted({rank for wait in inside for rank in _unfolded(wait["waiting_ranks"])})
    each = [
        f"rank {rank} in {own[rank]['waits_in']} of {own[rank]['group_name']}"
        f"{_at(own[rank]['waits_at'])}"
        for rank in members[:_NAMED]
    ]
    if (more := len(members) - _NAMED) > 0:
        each.append(f"and {counted(more, 'more rank')}")
    return {"Cycle": _first(_listed(members)), "each": ", ".join(each)}


def _idle(scope: Scope, row: Row, own: Mapping[int, Row]) -> Iterator[str]:
    """Yield what ranks did last that did not enqueue a call, and where their lines differ."""
    idle = _unfolded(row["idle_ranks"])
    for rank in idle[:_NAMED]:
        last = own[rank]
        if last["last_call"]:
            where = f"{last['last_call']} of {last['last_group']}{_at(last['last_site'])}"
            yield f"The last call of rank {rank}, which is finished, is {where}."
        else:
            yield f"The dump of rank {rank} has no calls."
    for drift in _records(scope, "hang_drifts", "report_id, group_id, rank"):
        if drift["rank"] == idle[0] and drift["group_id"] == row["group_id"]:
            yield (
                f"In #{drift['sequence']}, rank {idle[0]} is{_at(drift['site'])}, and most ranks "
                f"are{_at(drift['most_site'])}."
            )


def _times(row: Row) -> Iterator[str]:
    """Yield how long ranks waited when the dumps were written, and whether this is a hang."""
    waited, timeout = row["waited_s"], row["timeout_ms"]
    if waited is None:
        return
    limit = f" (timeout {format_ns(1e6 * timeout)})" if timeout else ""
    yield f"The dumps were last modified {format_ns(1e9 * waited)} after the call{limit}."
    if waited < thresholds()["hangs.brief_s"]:
        yield "After such a short time, the job may still run."


def _ras(scope: Scope) -> Iterator[tuple[str, str]]:
    states = _records(scope, "ras_states", "report_id, communicator NULLS FIRST, state, rank")
    for row in states[:_MOST]:
        yield _state(row), "ras_states"
    if (more := len(states) - _MOST) > 0:
        yield f"NCCL RAS reports {counted(more, 'further state')} of ranks.", "ras_states"
    differences = _records(scope, "ras_differences", "behind DESC, communicator, operation")
    for row in differences[:_MOST]:
        yield _difference(row), "ras_differences"


def _state(row: Row) -> str:
    if row["ranks"] is None:
        return (
            f"NCCL RAS reports different numbers of {row['operation']} calls in communicator "
            f"{row['communicator']}, and lists no ranks. Query it again as JSON (ncclras -f json)."
        )
    whose = f"{counted(row['ranks'], 'rank')}" if row["rank"] is None else f"rank {row['rank']}"
    if row["rank"] is None and row["pid"] is not None:
        whose = "a process"
    of = f" of communicator {row['communicator']}" if row["communicator"] else ""
    place = f" ({row['place']})" if row["place"] else ""
    return f"NCCL RAS reports {whose}{of}{place} as {row['state']}."


def _difference(row: Row) -> str:
    behind = _ranks(row["behind_ranks"]) if row["behind_ranks"] else counted(row["behind"], "rank")
    place = f" ({row['behind_where']})" if row["behind_where"] and row["behind"] == 1 else ""
    known = counted(row["most_ranks"], "rank")
    text = (
        f"NCCL RAS reports that {behind}{place} launched {row['least']:,} {row['operation']} "
        f"calls in communicator {row['communicator']}, and {known} {row['most']:,}"
    )
    if row["progress"] is None:
        return f"{text}. Query it again: such numbers also differ while a job runs."
    same = "the same" if row["progress"] == "none" else "different"
    return f"{text}; {row['queries']} queries show {same} numbers."


def _at(site: str | None) -> str:
    return f" at {site}" if site else ""


def _calls(ranks: int) -> str:
    return "calls" if ranks == 1 else "call"


def _ranks(folded: str | None) -> str:
    """Return ranks as a phrase.

    >>> _ranks("3"), _ranks("0-2, 5")
    ('rank 3', 'ranks 0-2, 5')
    """
    folded = folded or ""
    return f"rank {folded}" if folded.isdigit() else f"ranks {folded}"


def _listed(ranks: Sequence[int]) -> str:
    """Return sorted ranks as a phrase.

    >>> _listed([0, 1, 2, 5])
    'ranks 0-2, 5'
    """
    ends: list[list[int]] = []
    for rank in ranks:
        if ends and ends[-1][-1] == rank - 1:
            ends[-1][1:] = [rank]
        else:
            ends.append([rank])
    return _ranks(", ".join("-".join(map(str, part)) for part in ends))


def _unfolded(folded: str | None) -> list[int]:
    """Return the ranks of a text.

    >>> _unfolded("0-2, 5")
    [0, 1, 2, 5]
    """
    ends = [part.split("-") for part in (folded or "").split(", ") if part]
    return [rank for part in ends for rank in range(int(part[0]), int(part[-1]) + 1)]


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]
