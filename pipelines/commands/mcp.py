"""perfpipe mcp."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from perfpipe.errors import ToolMissing
from perfpipe.pipelines.options import limit_options, resolve_store, store_option

_allow_option = click.option(
    "--allow-run",
    "allowed",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="WORKLOAD",
    help="Allow the agent to run 'perfpipe evaluate' and 'perfpipe try' for this workload file; "
    "repeat for several.",
)


@click.group("mcp", invoke_without_command=True)
@_allow_option
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=8765,
    metavar="[PORT]",
    help="Serve over HTTP on 127.0.0.1 (default port: 8765; 0: any free port), to clients that "
    "have the token.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --http: file with the token, which only its owner can read (default: "
    "$PERFPIPE_MCP_TOKEN, else a new token, which is printed).",
)
@limit_options
@store_option
@click.pass_context
def mcp_command(
    context: click.Context,
    allowed: tuple[Path, ...],
    port: int | None,
    token_file: Path | None,
    store_path: str | None,
) -> None:
    """Serve the store to an agent over the Model Context Protocol (stdio, or --http).

    The agent's client starts this command (docs/agents.md); 'perfpipe mcp setup' configures
    clients.  The server only reads the store, unless --allow-run allows it to run the program of a
    workload, or kernels for it.  Tools: overview, explain, timeline, compare, schema, query,
    next_capture; with --allow-run also problem, evaluate, try and job.  A store that is created
    later is found.  Needs the MCP SDK in perfpipe's environment: pip install 'mcp>=2.3,<3'
    """
    if context.invoked_subcommand is not None:
        return
    if token_file is not None and port is None:
        raise click.UsageError("--token-file needs --http", context)
    if importlib.util.find_spec("mcp") is None:
        raise ToolMissing(
            "the MCP SDK is not installed in perfpipe's environment: pip install 'mcp>=2.3,<3'"
        )
    from perfpipe.pipelines.agents.http import Endpoint, token_of
    from perfpipe.pipelines.agents.judging import Jobs
    from perfpipe.pipelines.agents.server import serve

    endpoint = None if port is None else Endpoint(port, *token_of(token_file))
    serve(resolve_store(store_path), Jobs.of(allowed), endpoint)


@mcp_command.command("setup")
@click.argument("clients", nargs=-1, metavar="[CLIENT]...")
@_allow_option
@click.option("--user", "for_user", is_flag=True,
              help="Change the file of the user instead of that of this directory.")  # fmt: skip
@click.option("--print", "only_print", is_flag=True, help="Print the entries; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@store_option
def setup_command(
    clients: tuple[str, ...],
    allowed: tuple[Path, ...],
    for_user: bool,
    only_print: bool,
    yes: bool,
    store_path: str | None,
) -> None:
    """Configure clients to start this server.

    CLIENT: claude-code, claude-desktop, codex, cursor, gemini, vscode or zed; without CLIENT, all
    that are found on this machine.  Shows each change and asks before writing.  Other entries stay
    as they are.  A file with comments is changed only if it is TOML; otherwise the lines to add are
    printed, and the exit code is 2.
    """
    from perfpipe.pipelines.agents import setup
    from perfpipe.pipelines.agents.judging import Jobs

    Jobs.of(allowed)  # an invalid workload file would end the server
    entry = setup.entry(resolve_store(store_path).root, allowed)
    chosen = setup.chosen(clients)
    if only_print:
        for client in chosen:
            click.echo(f"{client.title}, {client.path(for_user)}:\n{client.lines(entry)}")
        return
    setup.write(chosen, entry, for_user, yes)
