"""The form of the tools' answers, as JSON Schema for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpipe.pipelines.agents.envelope import VERSION, Status

#: What each field of `data` is: its JSON type (several with |), and its meaning.
Fields = Mapping[str, tuple[str, str]]

_FINDING: Fields = {
    "finding": ("integer", "number, for explain"),
    "about": ("string", "timeline or kernel"),
    "claim": ("string", "kind of the finding"),
    "bound": ("string", "class: what limits the time"),
    "subclass": ("string", "part of the class"),
    "cause": ("string", "cause of the class"),
    "kernel": ("string", "name of the kernel"),
    "device": ("integer", "GPU"),
    "configuration": ("string", "parameters of the run"),
    "share": ("object", "share of a whole, %"),
    "says": ("string", "the finding as a sentence"),
    "because": ("string", "its evidence as a sentence"),
    "gain": ("object", "at_most_pct: bound on the gain, under an assumption"),
    "tried": ("string", "what a trial measured"),
    "confidence": ("string", "how certain the class is"),
    "on": ("array", "the GPUs that share the finding, with the share of each"),
}

#: Fields of `data` by tool.
DATA: Mapping[str, Fields] = {
    "overview": {
        "targets": ("array", "runs and reports of the store, the newest first"),
        "target": ("string", "what the answer is about"),
        "title": ("string", "name of the target"),
        "verdict": ("string", "what bounds the time"),
        "bounds": ("array", "class of each GPU's time, and of most kernel time"),
        "findings": ("array", "the first findings"),
        "tried": ("object", "what the latest trial measured"),
        "nothing_found": ("string", "what was looked for in vain"),
        "provenance": ("array", "reports, with tool, time and GPU"),
        "gaps": ("array", "what was not collected, and why"),
    },
    "explain": {
        **_FINDING,
        "grid": ("string", "blocks of the grid"),
        "block": ("string", "threads of a block"),
        "category": ("string", "category of the kernel"),
        "explanation": ("string", "why this class"),
        "nvidia": ("object", "NVIDIA's own verdict"),
        "sol_pct": ("object", "speed of light of compute and memory, %"),
        "near_limit": ("boolean", "whether a unit is near its limit"),
        "headroom": ("object", "share of the time above the limit of the hardware, %"),
        "techniques": ("array", "what to try, with bounds and what to check first"),
        "hot": ("array", "instructions and lines at which warps stall"),
        "hot_missing": ("string", "why there are no hot lines"),
        "copies": ("array", "copies by kind of memory: number, bytes, rate"),
        "copied_by": ("array", "lines that copy"),
        "copied_in": ("array", "NVTX ranges with the copies"),
        "calls": ("array", "the longest CUDA calls in idle time"),
        "idle_ns": ("integer", "idle time around these calls, ns"),
        "idle_is": ("string", "what that idle time is"),
        "lines": ("array", "lines that the host executed in idle time"),
        "lines_missing": ("string", "why there are no lines"),
        "rows": ("array", "rows behind the finding"),
        **dict.fromkeys(("sol", "occupancy", "memory"), ("array|object", "metrics, with full")),
        "stalls": ("array|object", "why warps wait, with full"),
    },
    "timeline": {
        "budgets": ("array", "time by category, of each GPU and window"),
        "steps": ("array", "how steps were found"),
        "idle_in": ("array", "causes of idle time"),
        "overlap": ("array", "communication, overlapped and exposed"),
        "ranks": ("array", "which rank the others wait for"),
        "idle_lines": ("array", "lines that the host executed in idle time"),
        "idle_lines_missing": ("string", "why there are no lines"),
    },
    "compare": {
        "verdict": ("string", "regressed, improved, same, or why there is no verdict"),
        "action": ("string", "what the gate does"),
        "why_that_verdict": ("string", "the reason as a sentence"),
        "basis": ("string", "what was compared"),
        "further_runs": ("integer", "runs that would decide"),
        "endpoints": ("array", "times of both sides, ratio, interval and number of runs"),
        "kernels": ("array", "kernels that changed"),
        "why": ("string", "what explains the change"),
        "differences": ("array", "what else differs"),
        "variables_that_differ": ("array", "environment variables that differ"),
    },
    "schema": {
        "relations": ("array|object", "views and tables"),
        "index": ("object", "names of views and tables by topic; a_{b,c} means a_b and a_c"),
        "name": ("string", "view or table"),
        "kind": ("string", "view or table"),
        "doc": ("string", "its meaning"),
        "columns": ("array", "its columns, with meaning and unit"),
        "more": ("string", "how to read more than the index"),
    },
    "query": {
        "of": ("string", "what was read"),
        "columns": ("array", "names of the columns"),
        "rows": ("array", "the rows, as lists of cells"),
    },
    "next_capture": {
        "question": ("string", "the question that the captures answer"),
        "because": ("string", "why this question is open"),
        "captures": ("array", "commands, with cost and what they answer"),
    },
    "problem": {
        "workloads": ("array", "workloads that may be run, and what for"),
        "problem": ("object", "entry point, inputs, outputs, cases, tolerances, limits, baselines"),
        "best": ("object", "the best candidate so far, with its files; proven by fresh launches?"),
        "judged": ("array", "this server's jobs on it, the newest first: status and speedups"),
        "searches": ("array", "searches of the store, the newest first: what they found"),
    },
    "evaluate": {"job": ("string", "id, for job"), "state": ("string", "state of the job")},
    "try": {"job": ("string", "id, for job"), "state": ("string", "state of the job")},
    "job": {
        "job": ("string", "id"),
        "state": ("string", "queued, running, done, failed or cancelled"),
        "result": ("object", "verdict on the candidate, with evidence"),
        "scores": ("array", "times of each case against each baseline"),
        "profile": ("object", "class and SOL of each kernel, or why there is no profile"),
        "trial": ("string", "id of the trial"),
        "headline": ("string", "what was gained"),
        "program": ("string", "the program"),
        "gpu": ("string", "the GPU"),
        "unit": ("string", "what times are of"),
        "plain_ms": ("number", "time without a lever, ms"),
        "aa": ("object", "two launches without a lever, compared"),
        "stack": ("object", "the levers that help, together"),
        "levers": ("array", "what each lever gained"),
        "not_launched": ("array", "levers that were not launched, and why"),
        "notes": ("array", "remarks"),
    },
}


def output_schema(tool: str) -> dict[str, Any]:
    """Return the schema of a tool's answers; any field of `data` may be missing or null."""
    fields = {
        name: {"type": [*kind.split("|"), "null"], "description": doc}
        for name, (kind, doc) in DATA[tool].items()
    }
    texts = {"type": "array", "items": {"type": "string"}}
    return {
        "type": "object",
        "properties": {
            "schema_version": {"const": VERSION},
            "status": {"enum": [str(status) for status in Status]},
            "reason": {"type": "string"},
            "data": {"type": "object", "properties": fields},
            "evidence": {"type": "array", "items": {"type": "object"}},
            "warnings": texts,
            "truncated": {"type": ["object", "null"]},
            "next": {"type": ["object", "null"]},
        },
        "required": ["schema_version", "status", "data"],
    }
