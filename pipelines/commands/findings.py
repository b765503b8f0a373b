"""perfpipe report --findings."""

from __future__ import annotations

import json
from typing import Any

import click

from perfpipe.pipelines.options import json_option, resolve_store, store_option


@click.command("findings")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of findings to show.",
)
@json_option("Print the JSON that agents receive from 'perfpipe mcp'.")
@store_option
def findings_command(
    names: tuple[str, ...], limit: int, as_json: bool, store_path: str | None
) -> None:
    """Show the verdict on a run or on reports, and every finding with its evidence.

    The default is the latest run, or all reports if the store has no runs.

    \b
    perfpipe report --findings
    perfpipe report --findings gemm-2026 --json
    """
    from perfpipe.pipelines.agents.desk import Desk
    from perfpipe.pipelines.agents.envelope import Answer, render
    from perfpipe.pipelines.agents.overview import overview
    from perfpipe.pipelines.selection import chosen

    store = resolve_store(store_path, must_exist=True)
    desk = Desk(store)

    def work() -> Answer:
        return overview(desk, ",".join(names) or desk.name_of(chosen(store, ())), limit)

    answer = desk.call(work)
    desk.close()
    text = render(answer)
    if as_json:
        click.echo(text)
        return
    for line in _lines(json.loads(text)):
        click.echo(line)


def _lines(answer: dict[str, Any]) -> list[str]:
    from perfpipe.pipelines.agents.wording import without_marks

    data = answer["data"]
    lines = [data.get("verdict") or answer["reason"]]
    for found in data["findings"]:
        gain = found["gain"]
        lines.append(f"{found['finding']}. {found['says']}")
        lines.append(f"   {found['because']}")
        if others := [str(one["finding"]) for one in found.get("on", [])[1:]]:
            lines.append(f"   the same on other GPUs: findings {', '.join(others)}")
        if "tried" in found:
            lines.append(f"   {found['tried']}")
        if gain["at_most_pct"] is not None:
            bound = f"up to {gain['at_most_pct']:.1f} % of {gain['of']}"
            lines.append(f"   {bound}, if {gain['assumes']}")
    if nothing := data.get("nothing_found"):
        lines.append(f"No findings: {nothing}")
    return [*map(without_marks, lines)]
