"""Names in ncu reports: functions, stall reasons, NVTX paths, metric families."""

from __future__ import annotations

import re
from collections.abc import Iterator

_OPERATOR = re.compile(r"\boperator\s*(\(\)|\[\]|<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>)")


def readable(text: str) -> str:
    r"""Return a text of NVIDIA's reader, in which bytes that are not UTF-8 are lone surrogates.

    >>> readable("caf\udce9 \xe9")
    'caf\ufffd \xe9'
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def function_name(demangled: str) -> str:
    """Return a kernel's function name: no return type, namespaces, template or call arguments.

    >>> function_name("void at::native::<unnamed>::norm<float, (bool)0>(int, T2 *)")
    'norm'
    """
    return _without_arguments(demangled).rpartition("::")[2].rpartition(" ")[2] or demangled


def namespace(demangled: str) -> str:
    """Return the outermost namespace or class of a C++ function, empty if there is none.

    >>> namespace("float std::generate_canonical<float>(std::mt19937&)")
    'std'
    """
    outer, colons, _ = _without_arguments(demangled).rpartition(" ")[2].partition("::")
    return outer if colons else ""


def _without_arguments(demangled: str) -> str:
    """Return a function with its return type, but without template and call arguments."""
    depth = 0
    kept: list[str] = []
    text = _OPERATOR.sub(lambda match: "operator" + match[1].translate(_HIDE), demangled)
    for char in text.replace("<unnamed>", "").replace("(anonymous namespace)", ""):
        if char == "<":
            depth += 1
        elif char == ">":
            depth = max(0, depth - 1)
        elif depth:
            continue
        elif char in "([":
            if kept and "".join(kept).strip():
                break
        else:
            kept.append(char)
    return "".join(kept).strip().translate(_SHOW)


_SIGNS = "()[]<>"
_HIDE = {ord(sign): 0xE000 + index for index, sign in enumerate(_SIGNS)}
_SHOW = {0xE000 + index: sign for index, sign in enumerate(_SIGNS)}

#: The sampled and averaged stall families, and the source page, name some reasons differently.
_STALL_ALIASES = {
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instruction",
    "no_instructions": "no_instruction",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
    "warpgroup_arrive": "gmma",
}


def stall_reason(name: str) -> str:
    """Return the canonical name of a stall reason (that of the averaged family).

    >>> stall_reason("no_instructions"), stall_reason("warpgroup_arrive")
    ('no_instruction', 'gmma')
    """
    return _STALL_ALIASES.get(name, name)


#: NVIDIA's reader names the units of these metrics depending on earlier reports in the process.
_UNSTEADY_UNITS = (
    (re.compile(r"derived__(sm|smsp)__sass_thread_inst_executed_op_\w+"), "inst"),
    (re.compile(r"sass__inst_executed_register_spilling_mem_\w+"), "inst"),
    (re.compile(r"derived__memory_l2_theoretical_sectors_\w+"), "sector"),
)


def unit_of(metric: str, told: str | None) -> str | None:
    """Return the unit of a metric, corrected if the reader's answer depends on earlier reports.

    >>> unit_of("sass__inst_executed_register_spilling_mem_local", "byte"), unit_of("x", "byte")
    ('inst', 'byte')
    """
    if metric.startswith(("derived__", "sass__")):
        for names, unit in _UNSTEADY_UNITS:
            if names.fullmatch(metric):
                return unit
    return told


_INSTANCE_FAMILIES = re.compile(
    r"smsp__pcsamp_(sample_count|warps_issue_stalled_\w+)"
    r"|(thread_)?inst_executed(_true)?"
    r"|memory_l2_theoretical_sectors_(global|local)(_ideal)?"
    r"|memory_l1_(wavefronts_shared(_ideal)?|tag_requests_global)"
    r"|smsp__branch_targets_threads_divergent"
    r"|sass__inst_executed_per_opcode"
    r"|launch__occupancy_per_\w+"
    # Series of PM sampling: the activity of units over time.
    r"|(pmsampling:|\w+\.\w+\.)(sm__cycles_active\.avg|gr__ctas_launched\w*\.sum"
    r"|(dramc?|lts|l1tex)__throughput\.avg\.pct_of_peak_sustained_elapsed"
    r"|sm__(inst_executed(_pipe_(alu|fma|xu))?|pipe_(fp64|tensor)_cycles_active)(_realtime)?"
    r"\.avg\.pct_of_peak_sustained_elapsed)"
)


def keeps_instances(metric: str) -> bool:
    """Return whether the instances of a metric are stored."""
    return _INSTANCE_FAMILIES.fullmatch(metric) is not None


_NVTX_END = re.compile(r'"(?=\s|$)')
_NVTX_FIELDS = re.compile(
    r"([^:]*):(.*?):(?:none|[A-Z0-9_]+):[^:]*:(?:none|[A-Z0-9_]+):[^:]*:"
    r"(?:none|[A-Z0-9_]+):.*",
    re.DOTALL,
)
_DEFAULT_DOMAIN = "<default domain>"


def nvtx_step(domain: str, name: str) -> str:
    """Return one step of an nvtx_path: the range, with its domain unless it is the default."""
    return name if domain in ("", _DEFAULT_DOMAIN) else f"{domain}:{name}"


def nvtx_path_from_csv(cell: str) -> str | None:
    """Return the nvtx_path of ncu's push/pop column: thread, then quoted ranges outer to inner.

    A registered string occurs twice in the cell and may contain colons, so the fields in between,
    which have few possible values, mark the end of the range.
    """
    steps = []
    for item in _quoted(cell):
        if match := _NVTX_FIELDS.fullmatch(item):
            steps.append(nvtx_step(match[1], match[2]))
    return "/".join(steps) or None


def _quoted(cell: str) -> Iterator[str]:
    """Yield quoted texts, which may contain quotes, but not before a space."""
    at = 0
    while (begin := cell.find('"', at)) >= 0 and (end := _NVTX_END.search(cell, begin + 1)):
        yield cell[begin + 1 : end.start()]
        at = end.end()


_MARKUP_LINK = re.compile(r"@url:([^@\n]*?):(https?://[^@\n]*)@")
_MARKUP = re.compile(r"@(?:section|sass|source):[^:@]*:([^@\n]*)@")


def plain_message(message: str) -> str:
    """Return a rule message without ncu's @section:...@ and @url:...@ markup."""
    return _MARKUP.sub(r"\1", _MARKUP_LINK.sub(r"\1 (\2)", message))
