"""perfpipe mcp."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from perfpipe.errors import ToolMissing
from perfpipe.pipelines.options import limit_options, resolve_store, store_option


@click.command("mcp")
@click.option(
    "--allow-run",
    "allowed",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="WORKLOAD",
    help="Allow the agent to run 'perfpipe evaluate' and 'perfpipe try' for this workload file; "
    "repeat for several.",
)
@limit_options
@store_option
def mcp_command(allowed: tuple[Path, ...], store_path: str | None) -> None:
    """Serve the store to an agent over the Model Context Protocol (stdio).

    The agent's client starts this command (docs/agents.md).  The server only reads the store,
    unless --allow-run allows it to run the program of a workload, or kernels for it.  Tools:
    overview, explain, timeline, compare, schema, query, next_capture; with --allow-run also
    evaluate, try and job.  Needs the MCP SDK in perfpipe's environment: pip install 'mcp>=2.3,<3'
    """
    if importlib.util.find_spec("mcp") is None:
        raise ToolMissing(
            "the MCP SDK is not installed in perfpipe's environment: pip install 'mcp>=2.3,<3'"
        )
    from perfpipe.pipelines.agents.judging import Jobs
    from perfpipe.pipelines.agents.server import serve

    serve(resolve_store(store_path, must_exist=not allowed), Jobs.of(allowed))
