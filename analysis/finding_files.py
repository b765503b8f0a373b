"""Findings about timelines that are one file each: a view with a block of TOML in its comment.

A view is a finding if its comment ends in such a block::

    /* finding
    claim = "process_starts"
    says = "idles between steps while the program starts processes"
    evidence = "{{ intervals | counted('time') }}, {{ idle_ns | ns }} in all, {{ share }}"
    question = "SELECT intervals, idle_ns, share_pct FROM starting_findings"

    [techniques.keep_workers]
    technique = "Keep the loader's workers from one epoch to the next"
    ...
    */

Its rows are GPUs: report_id, device, and share_pct, the share of the analyzed window that it costs.
The view `findings` shows the row with the largest share, `recommendations` its techniques.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfpipe.database import quote

#: Columns that a view hands on to `findings` if it has them.
_HANDED_ON = ("time_ns", "launches", "causes", "weight_pct", "part")

#: Columns of `findings` that a file can give by another name, and entries that a technique needs.
_RENAMED = frozenset({*_HANDED_ON, "subclass"})
_TECHNIQUE = frozenset({"technique", "detail", "check_first", "difficulty", "link"})
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")

#: What each row is about, and costs.
_KEYS = frozenset({"report_id", "device", "share_pct"})


@dataclass(frozen=True)
class FindingFile:
    """The block of one file; `types` are those of the columns of its view.

    `says` and `evidence` are Jinja templates of a row, with `share` and `words` beside its columns.
    `part` says what shares are of, if not the analyzed window: between, capture or window, as in
    findings.  The view may have it as a column instead.
    `category` is the category of the budget that shares belong to.  It says how they differ without
    the profiler: GPU work keeps its duration, and idle time is shorter.
    Rows of a GPU differ by the column `each`; the one with the most of `largest` is shown.
    `columns` maps columns of `findings` to those of the view.  `assumes` says what a bound
    (gain_pct) assumes, by the view's floor; without such a column there is one.  What does not
    recur, such as start-up, is shown last, and is no recommendation.  `techniques` have the form of
    knowledge.toml, but for `of`: the values of `each` that one is for, instead of classes.
    """

    view: str
    types: Mapping[str, str]
    claim: str
    says: str
    evidence: str
    question: str
    part: str = ""
    category: str = "compute"
    each: str = ""
    largest: str = "share_pct"
    recurs: bool = True
    confidence: str = "high"
    columns: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    assumes: Mapping[str, str] = field(default_factory=dict)
    techniques: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def chooses(self) -> bool:
        """Whether the view chooses a technique for each row; else all of the finding's apply."""
        return "technique" in self.types


def parse_block(text: str, path: str, view: str, types: Mapping[str, str]) -> FindingFile:
    """Parse the block of a view.  Raises ValueError, with its path, if it is not whole."""
    try:
        file = FindingFile(view, types, **tomllib.loads(text))
    except (TypeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    used = {*_KEYS, file.largest, *file.columns.values(), *([file.each] if file.each else [])}
    for column in sorted(used - types.keys()):
        raise ValueError(f"{path}: no column {column}")
    for column in sorted(file.columns.keys() - _RENAMED):
        raise ValueError(
            f"{path}: [columns] cannot give {column}, only {', '.join(sorted(_RENAMED))}"
        )
    for name in (file.claim, *file.assumes, *file.techniques):
        if not _IDENTIFIER.fullmatch(name):
            raise ValueError(f"{path}: {name!r} is not an identifier")
    for key, entry in file.techniques.items():
        if missing := _TECHNIQUE - entry.keys():
            raise ValueError(f"{path}: technique {key} lacks {', '.join(sorted(missing))}")
    if "gain_pct" in types and "floor" not in types and len(file.assumes) != 1:
        raise ValueError(f"{path}: a bound needs one assumption, or a column floor")
    return file


def claims_sql(files: Iterable[FindingFile]) -> str:
    """Return the query of what findings claim, in columns of `findings`."""
    return _plain(map(_claim, files), "bound_pct")


def advice_sql(files: Iterable[FindingFile]) -> str:
    """Return the query of their techniques: what recurs, GPU by GPU."""
    return _plain((_advice(file) for file in files if file.recurs), "gain_pct")


def _plain(queries: Iterable[str], bound: str) -> str:
    """Return all rows of some queries, with shares as they are without the profiler, if known."""
    shares = ", ".join(f"{name} * scale AS {name}" for name in ("share_pct", "weight_pct", bound))
    scale = "plain_scale(o.category, t.work_scale, t.communication_scale, t.idle_scale)"
    rows = "\nUNION ALL BY NAME\n".join(queries)
    return (
        f"SELECT * EXCLUDE (category, scale) REPLACE ({shares})\n"
        f"FROM (SELECT o.*, if(o.part IS NULL, {scale}, 1) AS scale\nFROM ({rows}) AS o\n"
        "LEFT JOIN step_times AS t ON t.report_id = o.report_id\n"
        "AND t.device IS NOT DISTINCT FROM o.device)"
    )


def _claim(file: FindingFile) -> str:
    each = f"v.{file.each}" if file.each else ""
    values = {
        "claim": quote(file.claim),
        "bound": quote(file.claim),
        "recurs": str(file.recurs).lower(),
        "precision": _precision(file),
        "category": quote(file.category),
        "confidence": quote(file.confidence),
        "place": f"row_number() OVER (ORDER BY v.share_pct DESC{each and ', '}{each})",
        **({"subclass": each} if each else {}),
        **({"part": quote(file.part)} if file.part else {}),
        **{name: f"v.{name}" for name in _HANDED_ON if name in file.types},
        **{name: f"v.{column}" for name, column in file.columns.items()},
        **_bound(file, "bound_pct"),
        "technique": _technique(file, "technique"),
    }
    part = f"PARTITION BY {each} " if each else ""
    first = f"v.{file.largest} DESC, v.report_id, v.device{'' if file.chooses else ', t.rank'}"
    return (
        f"(SELECT v.report_id, v.device, v.share_pct, {_columns(values)}\nFROM {_source(file)}\n"
        f"QUALIFY row_number() OVER ({part}ORDER BY {first}) = 1)"
    )


def _advice(file: FindingFile) -> str:
    values = {
        "technique": _technique(file, "technique"),
        "difficulty": _technique(file, "difficulty"),
        "bound": f"v.{file.each}" if file.each else quote(file.claim),
        "rank": "v.rank" if "rank" in file.types else "1" if file.chooses else "t.rank",
        "precision": _precision(file),
        "category": quote(file.category),
        **({"part": quote(file.part)} if file.part else {}),
        **{name: f"v.{name}" for name in ("weight_pct", "part") if name in file.types},
        **_bound(file, "gain_pct"),
    }
    return (
        f"(SELECT v.report_id, v.device, v.share_pct, {_columns(values)}\nFROM {_source(file)}\n"
        f"WHERE {values['technique']} IS NOT NULL)"
    )


def _columns(values: Mapping[str, str]) -> str:
    return ", ".join(f"{value} AS {name}" for name, value in values.items())


def _bound(file: FindingFile, name: str) -> dict[str, str]:
    """Return the bound on the gain, under a name, and its floor; nothing where there is none."""
    if "gain_pct" not in file.types:
        return {}
    floor = "v.floor" if "floor" in file.types else quote(*file.assumes)
    return {name: "v.gain_pct", "floor": floor}


def _precision(file: FindingFile) -> str:
    """Return whether its technique makes results less exact."""
    inexact = [quote(key) for key, entry in file.techniques.items() if entry.get("precision")]
    return f"{_technique(file, 'technique')} IN ({', '.join(inexact)})" if inexact else "false"


def _technique(file: FindingFile, column: str) -> str:
    """Return a column of the technique: the view's own choice, else any for this finding."""
    return f"{'v' if file.chooses else 't'}.{column}"


def _source(file: FindingFile) -> str:
    if file.chooses:
        return f"{file.view} AS v"
    of = f" AND t.subclass IN ('*', v.{file.each})" if file.each else ""
    return f"{file.view} AS v LEFT JOIN _techniques AS t ON t.bound = {quote(file.claim)}{of}"
