"""The tools over the Model Context Protocol, on stdin and stdout."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import anyio
from anyio.to_thread import run_sync
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from perfpipe.errors import PerfpipeError
from perfpipe.pipelines.agents import pages, tools
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.judging import Jobs
from perfpipe.pipelines.agents.warming import Warming
from perfpipe.pipelines.agents.wording import plain
from perfpipe.store import Store

_READS = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


_RUNS = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)


def serve(store: Store, jobs: Jobs | None = None) -> None:
    """Answer until stdin ends."""
    anyio.run(_serve, Desk(store, jobs))


async def _serve(desk: Desk) -> None:
    server = make_server(desk)
    warming = Warming(desk)
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        warming.end()
        desk.close()


def make_server(desk: Desk) -> Server[Any]:
    """Return a server that reads one store."""

    async def in_thread(work: Any, *given: Any) -> Any:
        try:
            return await run_sync(work, *given, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            desk.stop()
            raise

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=tool.doc,
                    input_schema=tool.arguments.model_json_schema(),
                    annotations=_RUNS if tool.runs else _READS,
                )
                for name, tool in tools.offered(desk).items()
            ]
        )

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        text, wrong = await in_thread(tools.call, desk, params.name, given)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=wrong)

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
            mime_type="text/markdown",
        )
        return types.ListResourceTemplatesResult(resource_templates=[report])

    async def read(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        try:
            text, kind = await in_thread(pages.page, desk, params.uri)
        except PerfpipeError as error:
            raise _refusal(error) from error
        content = types.TextResourceContents(uri=params.uri, text=text, mime_type=kind)
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
        version=metadata.version("perfpipe"),
        instructions=pages.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def _arguments(prompt: pages.Prompt) -> list[types.PromptArgument]:
    return [
        types.PromptArgument(name=name, description=doc, required=True)
        for name, doc in prompt.arguments.items()
    ]


def _refusal(error: PerfpipeError) -> MCPError:
    return MCPError(types.INVALID_PARAMS, plain(str(error)))
