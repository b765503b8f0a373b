"""The tools over the Model Context Protocol, on stdin and stdout or over HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from anyio.to_thread import run_sync
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.agents import pages, tools
from perfpipe.pipelines.agents.calls import Call
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.http import Endpoint
from perfpipe.pipelines.agents.judging import Jobs
from perfpipe.pipelines.agents.outputs import output_schema
from perfpipe.pipelines.agents.refusals import in_own_words
from perfpipe.pipelines.agents.results import result
from perfpipe.pipelines.agents.warming import Warming
from perfpipe.pipelines.agents.wording import plain
from perfpipe.pipelines.memory import share_memory
from perfpipe.provenance import version
from perfpipe.store import Store

T = TypeVar("T")
Context = ServerRequestContext[Any, Any]

#: Calls that read the store at a time, and calls that wait for jobs.
_READING, _WAITING = 4, 32

#: How often a long call reports its progress, s.
_PROGRESS_S = 1.0

_READS = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

_RUNS = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)


def serve(store: Store, jobs: Jobs | None = None, endpoint: Endpoint | None = None) -> None:
    """Answer until stdin ends; with an endpoint, over HTTP until a signal ends the process."""
    share_memory(_READING)
    anyio.run(_serve, Desk(store, jobs), endpoint)


async def _serve(desk: Desk, endpoint: Endpoint | None) -> None:
    server = make_server(desk)
    async with _opened(desk):
        if endpoint is not None:
            await endpoint.serve(server)
            return
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


@asynccontextmanager
async def _opened(desk: Desk) -> AsyncIterator[None]:
    warming = Warming(desk)
    try:
        yield
    finally:
        warming.end()
        desk.close()


def make_server(desk: Desk) -> Server[Any]:
    """Return a server that reads one store."""
    reading, waiting = anyio.CapacityLimiter(_READING), anyio.CapacityLimiter(_WAITING)

    async def in_thread(
        context: Context, limiter: anyio.CapacityLimiter, work: Callable[[Call], T]
    ) -> T:
        """Run a call in a thread; report its progress, and stop it if the client cancels it."""
        call = Call()
        async with anyio.create_task_group() as beside:
            beside.start_soon(_report, context, call)
            try:
                return await run_sync(work, call, abandon_on_cancel=True, limiter=limiter)
            except anyio.get_cancelled_exc_class():
                call.stop()
                raise
            except PerfpipeError as error:
                # The task group would wrap what leaves it.
                refused = error
            finally:
                beside.cancel_scope.cancel()
        raise refused

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=tool.doc,
                    input_schema=tools.input_schema(tool),
                    output_schema=output_schema(name),
                    annotations=_RUNS if tool.runs else _READS,
                )
                for name, tool in tools.offered(desk).items()
            ]
        )

    async def call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        name, given = params.name, params.arguments or {}
        limiter = waiting if name in tools.RUNNING else reading
        text, wrong = await in_thread(
            context, limiter, lambda call: tools.call(desk, name, given, call)
        )
        return result(text, wrong, context.protocol_version)

    async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=address, name=name, description=doc)
                for address, (name, doc) in pages.PAGES.items()
            ]
        )

    async def list_templates(_: Any, __: Any) -> types.ListResourceTemplatesResult:
        report = types.ResourceTemplate(
            uri_template=pages.REPORT,
            name="report",
            description="The report of a run or of reports, as Markdown.",
            mime_type=pages.MARKDOWN,
        )
        return types.ListResourceTemplatesResult(resource_templates=[report])

    async def read(
        context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        address = params.uri
        try:
            text, kind = await in_thread(
                context, reading, lambda call: pages.page(desk, address, call)
            )
        except PerfpipeError as error:
            raise _refusal(error) from error
        content = types.TextResourceContents(uri=address, text=text, mime_type=kind)
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name=name, description=prompt.doc, arguments=_arguments(prompt))
                for name, prompt in pages.PROMPTS.items()
            ]
        )

    async def get_prompt(_: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        given: Mapping[str, str] = params.arguments or {}
        try:
            text = pages.prompt(params.name, given)
        except PerfpipeError as error:
            raise _refusal(error) from error
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(messages=[message])

    return Server(
        "perfpipe",
        version=version(),
        instructions=pages.instructions(desk.jobs.workloads if desk.jobs else ()),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


async def _report(context: Context, call: Call) -> None:
    """Report the progress of a call in seconds, if its client asked for that."""
    began = time.monotonic()
    while True:
        await anyio.sleep(_PROGRESS_S)
        seconds = round(time.monotonic() - began, 1)
        await context.session.report_progress(seconds, None, f"{call.doing()}, {seconds:.0f} s")


def _arguments(prompt: pages.Prompt) -> list[types.PromptArgument]:
    return [
        types.PromptArgument(name=name, description=doc, required=True)
        for name, doc in prompt.arguments.items()
    ]


def _refusal(error: PerfpipeError) -> MCPError:
    return MCPError(types.INVALID_PARAMS, plain(in_own_words(str(error))))
