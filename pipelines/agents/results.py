"""Results of tools as the protocol has them: text, structured content, links to reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcp import types
from mcp_types.version import is_version_at_least

from perfpipe.pipelines.agents import pages
from perfpipe.pipelines.agents.outline import outline

#: The first version of the protocol with structured content and links.
_STRUCTURED = "2025-06-18"

#: Most links of a result.
_LINKS = 4


def result(text: str, wrong: bool, version: str) -> types.CallToolResult:
    """Return an answer (JSON) as the result of a call, for a version of the protocol.

    Both the text and the structured content are complete: most clients show a model one of them.
    """
    answer = json.loads(text)
    told: list[types.ContentBlock] = [types.TextContent(text=outline(answer))]
    if not is_version_at_least(version, _STRUCTURED):
        return types.CallToolResult(content=told, is_error=wrong)
    told += [
        types.ResourceLink(
            uri=pages.report_address(target),
            name=f"report {target}",
            description="The whole report.",
            mime_type=pages.MARKDOWN,
        )
        for target in [*dict.fromkeys(_reports(answer))][:_LINKS]
    ]
    return types.CallToolResult(content=told, structured_content=answer, is_error=wrong)


def _reports(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the runs and reports that an answer is about, and those that its job has made."""
    data = answer["data"]
    if isinstance(data.get("target"), str):
        yield data["target"]
    profile = data.get("profile") or {}
    if isinstance(profile.get("report"), str):
        yield profile["report"]
    following = answer.get("next") or {}
    if "job" in data and following.get("tool") == "overview":
        yield following["arguments"]["target"]
