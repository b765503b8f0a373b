"""Answers to calls that failed, in the words of the tools: their arguments, not the options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from perfpipe.errors import PerfpipeError, did_you_mean
from perfpipe.pipelines.agents.envelope import Answer, Next, Status, failed
from perfpipe.pipelines.agents.wording import plain

#: What the command line calls an argument or a tool, and what a tool calls it.
_WORDS = (
    (r"'perfpipe query \"(.+?)\"' lists them", r"query with sql '\1' lists them"),
    (r'perfpipe query (".+?")', r"query with sql \1"),
    (r"'perfpipe schema' lists them", "schema lists them"),
    (r"'perfpipe ls' lists them", "overview without a target lists them"),
    (r"--from must be before --to", "start_ms must be less than end_ms"),
    (r"--window (.*?):", r"window '\1':"),
    (r"--step (\S+):", r"step \1:"),
    (r"; raise the (time |memory )?limit with (--(?:timeout|memory)) \S+ or \w+( \([^)]*\))?",
     r"; ask for less, or start perfpipe mcp with a higher \2"),
)  # fmt: skip


def in_own_words(text: str) -> str:
    """Return an error with the names of arguments and tools instead of options and commands."""
    for pattern, instead in _WORDS:
        text = re.sub(pattern, instead, text)
    return text


def refusal(error: PerfpipeError | str, following: Next | None) -> Answer:
    """Return the answer to a call that failed, and the call that helps.

    A query that the error names helps more than that call.
    """
    reason = in_own_words(str(error))
    if listed := re.search(r"query with sql '(.+?)'", reason):
        target = following.arguments if following and following.tool == "overview" else {}
        following = Next("query", {**target, "sql": listed[1]})
    return replace(failed(reason), next=following)


def unknown_tool(name: str, known: Mapping[str, object]) -> Answer:
    """Return the answer to a call of a tool that does not exist."""
    hint = did_you_mean(name, known) or f"; the tools are {', '.join(known)}"
    return refusal(f"no tool '{plain(name, 60)}'{hint}", Next("overview", {}))


def wrong_arguments(
    tool: str,
    arguments: type[BaseModel],
    given: Mapping[str, Any],
    error: ValidationError,
    instead: Next | None,
) -> Answer:
    """Return what is wrong with arguments; `next` is the call with those that are right."""
    wrong = error.errors(include_url=False, include_context=False)
    reason = "; ".join(dict.fromkeys(_complaint(tool, arguments, one) for one in wrong))
    bad = {str(one["loc"][0]) for one in wrong if one["loc"]}
    right = {name: one for name, one in given.items() if name not in bad}
    for name in bad & given.keys() - arguments.model_fields.keys():
        for meant in get_close_matches(name, arguments.model_fields, n=1):
            if meant not in given:
                right[meant] = given[name]
    try:
        arguments.model_validate(right)
    except ValidationError:
        return refusal(reason, instead)
    return refusal(reason, Next(tool, right))


def _complaint(tool: str, arguments: type[BaseModel], error: Any) -> str:
    if not error["loc"]:
        return str(error["msg"]).removeprefix("Value error, ")
    name = plain(str(error["loc"][0]), 60)
    known = arguments.model_fields
    if name not in known:
        hint = did_you_mean(name, known) or f"; it takes {', '.join(known)}"
        return f"{tool} has no argument '{name}'{hint}"
    schema = arguments.model_json_schema()["properties"][name]
    doc = schema.get("description", "").rstrip(".")
    if error["type"] == "missing":
        return f"{tool} needs {name}: {doc[:1].lower()}{doc[1:]}"
    return f"{name} must be {_kinds(schema)}, not {plain(repr(error['input']), 60)}"


#: Types of JSON Schema in words.
_KINDS = {
    "string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false",
    "array": "a list of texts", "object": "an object that maps names to texts", "null": "null",
}  # fmt: skip


def _kinds(schema: Mapping[str, Any]) -> str:
    """Return what values a schema of an argument allows, in words."""
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if "anyOf" in schema:
        kinds = [_kinds(one) for one in schema["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null")
    kind = _KINDS.get(schema.get("type", ""), "another value")
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None:
        return f"{kind} from {low} to {high}"
    if low is not None:
        return f"{kind} of at least {low}"
    if "maxItems" in schema:
        return f"{kind}, at most {schema['maxItems']}"
    return f"{kind} with at least one entry" if "minProperties" in schema else kind


def nothing_yet(store: str) -> Answer:
    """Return the answer about a store that is missing or empty."""
    return Answer(
        status=Status.ABSTAINED,
        reason=f"{plain(store)}: nothing has been profiled or ingested into this store yet; what "
        "appears there is used",
        next=Next("next_capture", {"question": "timeline"}),
    )
