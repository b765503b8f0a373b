"""Compares two sides: verdict, ratio, interval, number of runs, and the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfpipe.analysis.facts import ENVIRONMENT
from perfpipe.analysis.gate.decision import Verdict
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.cutting import first, lean
from perfpipe.pipelines.agents.desk import Desk, split
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.marking import Marking
from perfpipe.pipelines.agents.wording import captured, plain, value, values
from perfpipe.pipelines.gate.compare import compared
from perfpipe.pipelines.gate.outputs import as_data

#: Conclusive verdicts; the others do not say whether anything changed.
_KNOWN = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.SAME, Verdict.FAILED)

_KERNELS, _DIFFERENCES = 8, 10


def compare(desk: Desk, base: str, candidate: str) -> Answer:
    """Compare two sides, each a comma-separated list of runs or reports."""
    before, after = split(base), split(candidate)
    if any(name.endswith(".json") for name in (*before, *after)):
        raise InputError("pass runs, reports or named baselines of the store, not files")
    found = compared(desk.store, before, after)
    decision = found.decision
    data = as_data(decision, found.comparison.why)
    endpoints = [_row(row) for row in data["endpoints"]]
    differences = data["why"]["differences"]
    marks = Marking(_texts({key: data[key] for key in ("endpoints", "kernels", "why")}))
    variables = [row["name"] for row in differences if row["kind"] == ENVIRONMENT]
    answer = {
        "verdict": data["verdict"],
        "action": data["action"],
        "why_that_verdict": marks.sentence(data["reason"]),
        "basis": plain(data["basis"]),
        "further_runs": data["further_runs"],
        "endpoints": endpoints,
        "kernels": first(
            [_row(row) for row in data["kernels"][:_KERNELS]], _KERNELS, len(data["kernels"])
        ),
        # The text may quote values of environment variables.
        "why": None if variables else marks.sentence(data["why"]["text"] or None),
        "differences": first(
            [values(row) for row in differences if row["kind"] != ENVIRONMENT],
            _DIFFERENCES,
        ),
        "variables_that_differ": first([captured(name) for name in variables], _DIFFERENCES),
    }
    proofs = tuple(
        Evidence(
            "endpoints", {"label": row["label"], "part": row["part"]}, "change_pct",
            row["change_pct"], "%", min(row["runs"]),
        )
        for row in endpoints
    )  # fmt: skip
    known = decision.verdict in _KNOWN
    asked = {"question": "replicates", "target": candidate}
    return Answer(
        lean(answer),
        Status.ANSWERED if known else Status.ABSTAINED,
        ""
        if known
        else f"{decision.verdict}: {plain(decision.reason)}; this does not prove equal speed",
        proofs,
        rows="endpoints",
        next=Next("overview", {"target": candidate}) if known else Next("next_capture", asked),
    )


#: Texts of a compared pair that perfpipe wrote.
_OURS = ("part", "profiler", "verdict")


def _row(row: dict[str, Any]) -> dict[str, Any]:
    change = row["change_pct"]
    ratio = None if change is None else value(1 + change / 100)
    return {**values(row, _OURS), "label": captured(row.get("label")), "ratio": ratio}


def _texts(data: Any) -> Iterator[str]:
    """Yield the texts of a comparison that name things; its explanation is a sentence."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, one in data.items():
            yield from () if key in (*_OURS, "text", "kind") else _texts(one)
    elif isinstance(data, (list, tuple)):
        for one in data:
            yield from _texts(one)
