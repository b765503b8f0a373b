"""perfpipe schema."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import click

from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.options import json_document, json_option

#: The dialect of the schemas that pydantic writes.
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Relation:
    """A documented table or view; columns are (name, meaning)."""

    name: str
    kind: str
    doc: str
    columns: tuple[tuple[str, str], ...]


def relations() -> list[Relation]:
    """Return every public relation: catalogue, stored and reference tables, analysis views."""
    from perfpipe.analysis.reference import REFERENCE_TABLES
    from perfpipe.analysis.views import views
    from perfpipe.catalogue import CATALOGUE, CATALOGUE_DOCS
    from perfpipe.model import public_name, tables

    stored = [
        Relation(public_name(t.name), "table", t.doc, tuple((c.name, c.doc) for c in t.columns))
        for t in tables().values()
    ]
    catalogue = [
        Relation(name, "catalogue", CATALOGUE_DOCS[name], tuple((c, doc) for c, _, doc in columns))
        for name, columns in CATALOGUE.items()
    ]
    reference = [
        Relation(name, "reference", table.doc, tuple(table.columns.items()))
        for name, table in REFERENCE_TABLES.items()
        if table.doc
    ]
    analysis = [
        Relation(v.name, "view", v.doc, tuple(v.columns.items()))
        for v in views().values()
        if v.public
    ]
    return [*catalogue, *stored, *reference, *sorted(analysis, key=lambda view: view.name)]


@click.command("schema")
@click.argument("table", required=False)
@json_option()
def schema_command(table: str | None, as_json: bool) -> None:
    """List the tables and views, or the columns of TABLE with their meaning and unit.

    `perfpipe schema workload` prints the JSON Schema of workload files.  Save the output as
    workload.schema.json; editors then use it for a workload file that begins with this line:

    \b
    # yaml-language-server: $schema=workload.schema.json
    """
    if table == "workload":
        from perfpipe.pipelines.workload import Workload

        click.echo(json.dumps({"$schema": _DIALECT, **Workload.model_json_schema()}, indent=1))
        return
    from perfpipe.model import public_name

    known = {relation.name: relation for relation in relations()}
    table = table and public_name(table)
    if table is not None and table not in known:
        hint = did_you_mean(table, known)
        raise InputError(f"no table or view '{table}'{hint} ('perfpipe schema' lists them)")
    chosen = list(known.values()) if table is None else [known[table]]
    if as_json:
        click.echo(json_document(relations=[asdict(r) for r in chosen]))
    elif table is None:
        width = max(len(name) for name in known)
        for relation in chosen:
            click.echo(f"{relation.name:{width}}  {relation.kind:9}  {relation.doc}")
    else:
        width = max(len(name) for name, _ in chosen[0].columns)
        click.echo(f"{chosen[0].doc}\n")
        for name, doc in chosen[0].columns:
            click.echo(f"{name:{width}}  {doc}")
