"""The page of a search: its gain, the candidates with lineage, the confirmation, the change."""

from __future__ import annotations

from dataclasses import replace

from perfpipe.analysis import search_tables as tables
from perfpipe.analysis.search_summary import Found, facts, headline
from perfpipe.analysis.thresholds import thresholds
from perfpipe.searchrecord import Search
from perfpipe.units import counted, format_ns
from perfpipe.viewmodel import Code, Column, Fact, Opening, Report, Section, Source, Table, Tile


def search_report(found: Found, search: Search, change: str) -> Report:
    """Build the page of a search; `change` is the difference of the winner to the baseline."""
    source = Source("search.json", (search.search_id,))
    said = [Fact(name, text.rstrip("."), source) for name, text in facts(found)]
    lead = replace(tables.finalists(found, source), headline=1)
    all_ = replace(tables.candidates(found, source), headline=2)
    sections = [
        _section("confirmation", "Confirmation", lead),
        _section("candidates", "Candidates", all_, tables.generations(found, source)),
        _section("traits", "What the best have in common", tables.traits(found, source)),
        _section("failures", "Without times", tables.failures(found, source)),
    ]
    if change and found.best:
        title = f"{found.best} compared with {search.baseline}"
        table = _files(found.best, search, source)
        codes = (Code(title, change, source),)
        sections.append(Section("change", "The change", (table,), "", codes=codes))
    return Report(
        title=f"{search.workload} ({search.search_id})",
        notice=_notice(search),
        statements=tuple(said[:1]),
        summary=tuple(said[1:]),
        opening=Opening(
            Fact("", f"{search.device_name} · {search.created_at[:10]}", source),
            Fact("", headline(found), source),
            tuple(_tiles(found, search, source)),
            lead=all_.title if all_.rows else "",
        ),
        sections=(sections[0], *(section for section in sections[1:] if section.tables)),
        provenance=tuple(_provenance(search, source)),
        contents="Candidates",
    )


def _files(name: str, search: Search, source: Source) -> Table:
    """Return where the files of a candidate are."""
    columns = (Column("name", "Candidate", "text"), Column("files", "Files in the store", "text"))
    row = (name, f"searches/{search.search_id}/candidates/{name}/files")
    doc = "The files of the best candidate; lines with + are new, lines with - are the baseline's."
    return Table("Files", doc, columns, (row,), 1, source)


def _notice(search: Search) -> str | None:
    if search.state == "done":
        return None
    return "This search is not finished: perfpipe search --resume " + search.search_id


def _section(id_: str, title: str, *made: Table) -> Section:
    return Section(
        id_, title, tuple(table for table in made if table.rows), "nothing was confirmed"
    )


def _tiles(found: Found, search: Search, source: Source) -> list[Tile]:
    decision = found.decision
    made = []
    if decision is not None and (name := decision.best) is not None:
        speedup = decision.speedups[name]
        note = f"{name} over {search.baseline}, {speedup.launches} fresh launches"
        title = "Proven speedup" if decision.winner else "No proven gain"
        made.append(Tile(title, f"{speedup.ratio:.3f} x", note, source))
    generations = counted(len(found.generations), "generation")
    correct = sum(own.correct for own in found.attempts)
    made.append(Tile("Candidates", str(len(found.attempts)), f"{correct} correct", source))
    word = "proven" if found.convergence.proven else "not proven"
    made.append(Tile("Convergence", word, generations, source))
    made.append(Tile("Time", format_ns(search.spent_s * 1e9), "of all generations", source))
    return made


def _provenance(search: Search, source: Source) -> list[Fact]:
    settings = search.settings
    made = [
        Fact("Workload", search.path, source),
        Fact("Agent", " ".join(settings.agent) or "none", source),
        Fact("Seed", str(search.seed), source),
    ]
    if search.baselines:
        over = ", ".join(f"{name} {ratio:.3g} x" for name, ratio in search.baselines.items())
        text = f"{search.baseline} is the fastest baseline: {over}"
        made.append(Fact("Baseline", text, source))
    made += [Fact(name, value, source) for name, value in search.provenance.items()]
    made.append(
        Fact("Thresholds", f"version {thresholds()['version']:g}", Source("thresholds.toml", ()))
    )
    return made
