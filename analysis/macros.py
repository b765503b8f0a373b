"""The SQL macros: formulas of the .sql files, thresholds, and classes of names on timelines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from perfpipe.database import quote
from perfpipe.files import packaged
from perfpipe.optimizers import FOREACH, OPTIMIZER
from perfpipe.source_paths import CELL, PACKAGES, STANDARD
from perfpipe.windows import STEADY

_FILES = (
    "hang_macros.sql",
    "macros.sql",
    "occupancy_macros.sql",
    "program_macros.sql",
    "timeline_macros.sql",
)
_MACRO = re.compile(r"^CREATE MACRO (\w+)\(([^)]*)\) AS\s", re.MULTILINE)
_THRESHOLD = re.compile(r"\bthreshold\('([a-z_.0-9]+)'\)")
#: A letter that stands for itself; classes such as \w are none.
_LETTER = re.compile(r"(?<!\\)[A-Za-z]")
_COMMENT = re.compile(r"^--[^\n]*\n?", re.MULTILINE)

#: Patterns of timeline.toml, and their case sensitivity.
_NAME_MACROS = {
    "synchronising": "",
    "step": "i",
    "part": "",
    "no_step": "i",
    "loading": "",
    "ordering": "",
    "building": "",
    "capturing": "",
    "ending": "",
    "instantiating": "",
    "allocating": "",
    "initializing": "",
    "compiled": "i",
    "compiling": "i",
    "tuning": "i",
    "connecting": "",
    "training": "i",
    "waiting": "",
    "serving": "",
    "polling": "",
    "flushing": "",
    "starting": "",
    "input": "i",
    "reading": "",
}


@dataclass(frozen=True)
class Macro:
    """A scalar macro: `body` is the expression of a call."""

    name: str
    parameters: str
    body: str

    @property
    def sql(self) -> str:
        """The statement that creates or replaces it."""
        return f"CREATE OR REPLACE MACRO {self.name}({self.parameters}) AS {self.body}"


def macros(
    thresholds: Mapping[str, float], step_range: str | int | None = None, window: str = STEADY
) -> dict[str, Macro]:
    """Return every macro by name; `step_range` is a regular expression of ranges that are steps.

    A number is the number of the loop whose iterations are the steps.
    `window` is the window of verdicts: steady, whole, startup, or a step's name or number.
    """
    made = (
        _threshold_macro(thresholds),
        *_name_macros(step_range if isinstance(step_range, str) else None),
        Macro("step_range_given", "", "true" if isinstance(step_range, str) else "false"),
        Macro(
            "step_loop",
            "",
            f"{step_range}::BIGINT" if isinstance(step_range, int) else "NULL::BIGINT",
        ),
        Macro("window_choice", "", quote(window)),
        communication_macro(),
        category_macro(),
        library_macro(),
        closed_macro(),
        built_in_macro(),
        generated_macro(),
        operands_macro(),
        setup_macro(),
        source_macro(),
        engine_macro(),
        group_macro(),
        *operator_macros(),
    )
    of_files = {
        name: replace(macro, body=with_thresholds(macro.body, thresholds))
        for name, macro in _of_files().items()
    }
    return of_files | {macro.name: macro for macro in made}


def with_thresholds(sql: str, thresholds: Mapping[str, float]) -> str:
    """Return SQL with values instead of threshold('name'): each call would bind all of them."""
    return _THRESHOLD.sub(lambda found: _constant(thresholds[found[1]]), sql)


@cache
def _of_files() -> dict[str, Macro]:
    found = {}
    for name in _FILES:
        text = packaged("perfpipe.analysis", "sql", name)
        text = _COMMENT.sub("", text)
        starts = list(_MACRO.finditer(text))
        ends = [start.start() for start in starts[1:]] + [len(text)]
        for start, end in zip(starts, ends, strict=True):
            body = text[start.end() : end].strip().removesuffix(";")
            found[start[1].lower()] = Macro(start[1], start[2], body)
    return found


def _threshold_macro(thresholds: Mapping[str, float]) -> Macro:
    """Return the macro threshold(name), for queries that are not views."""
    cases = " ".join(
        f"WHEN {quote(name)} THEN {_constant(value)}" for name, value in thresholds.items()
    )
    return Macro("threshold", "name", f"CASE name {cases} END")


def _constant(value: float) -> str:
    # Without the type it is DECIMAL, and every compared value is cast.
    return f"{value!r}::DOUBLE"


def name_patterns() -> dict[str, str]:
    """Return the regular expressions of timeline.toml."""
    text = packaged("perfpipe.analysis", "timeline.toml")
    return tomllib.loads(text)


def _name_macros(step_range: str | None) -> Iterator[Macro]:
    """Yield the macros that classify names on a timeline, is_step(name) and others."""
    patterns = name_patterns()
    if step_range:
        patterns["step"] = step_range
    for kind, option in _NAME_MACROS.items():
        test = f"regexp_matches(name, {quote(patterns[kind])}, {quote(option)})"
        yield Macro(f"is_{kind}", "name", test)


def category_macro() -> Macro:
    """Return the macro of a kernel's category, from its function name and full name.

    Raises ValueError if kernels.toml uses a category that it does not list.
    """
    return _kernel_macro("kernels.toml", "category", "categories", "other")


def communication_macro() -> Macro:
    """Return the macro that is true for communication kernels."""
    test = f"coalesce({_test(_communication())}, false)"
    return Macro("is_communication", "function_name, full_name", test)


def communicating() -> str:
    """Return a case-sensitive ECMAScript pattern of demangled names of communication kernels."""
    rule = _communication()
    functions, unless = (_either(rule[key]).replace("^", r"\b") for key in ("function", "unless"))
    names = rf"{functions}|{_either(rule['full'])}|\b({_either(rule['namespace'])})::"
    return f"(?!.*({_any_case(unless)})).*({_any_case(names)})"


def _communication() -> Mapping[str, Any]:
    """Return the first rule of kernels.toml, which no other rule may precede."""
    rule = _rules("kernels.toml")["rule"][0]
    if rule["category"] != "communication":
        raise ValueError("kernels.toml: the first rule must be that of communication")
    return cast("Mapping[str, Any]", rule)


def _any_case(pattern: str) -> str:
    """Return a pattern that matches in any case, for tools without such an option."""
    return _LETTER.sub(lambda found: f"[{found[0].lower()}{found[0].upper()}]", pattern)


def setup_macro() -> Macro:
    """Return the macro of what a kernel prepares or checks by its name; none for other kernels."""
    return _kernel_macro("setup.toml", "setup", "setups", "none")


def source_macro() -> Macro:
    """Return the macro of the short form of a Python file or library.

    torch/nn/modules/linear.py and threading.py for what is installed, as in relative paths of
    torch.profiler; otherwise the base name.
    """
    path = r"replace(file, '\', '/')"
    shortened = (
        (PACKAGES, ""),
        (STANDARD, ""),
        (CELL, r"<cell \1>"),
        ("^(<[^>]*>[^ ]*) .*", r"\1"),
    )
    cases = " ".join(
        f"WHEN regexp_matches({path}, {quote(pattern)}) "
        f"THEN regexp_replace({path}, {quote(pattern)}, {quote(text)})"
        for pattern, text in shortened
    )
    base = f"regexp_replace({path}, '^(?:[A-Za-z]:|[.]*)/.*/|^(?:[A-Za-z]:)?/', '')"
    return Macro("short_source", "file", f"CASE {cases} ELSE {base} END")


def group_macro() -> Macro:
    """Return the macro of the kind of a group of ranks by its name; NULL if the name says none."""
    rules = tomllib.loads(packaged("perfpipe.analysis", "groups.toml"))
    cases = " ".join(
        f"WHEN regexp_matches(description, {quote(pattern)}, 'i') "
        f"THEN {'NULL' if kind == 'none' else quote(kind)}"
        for kind, pattern in rules.items()
    )
    return Macro("group_kind", "description", f"CASE {cases} END")


def library_macro() -> Macro:
    """Return the macro of a kernel's library, like `category_macro`."""
    return _kernel_macro("libraries.toml", "library", "libraries", "own")


def closed_macro() -> Macro:
    """Return the macro that is true if the user cannot change the kernels of a library."""
    return _library_macro("closed")


def built_in_macro() -> Macro:
    """Return the macro that is true if a library's kernels are compiled into the program."""
    return _library_macro("built_in")


def generated_macro() -> Macro:
    """Return the macro that is true if a compiler generates the kernels of a library."""
    return _library_macro("generated")


def _library_macro(kind: str) -> Macro:
    libraries = _rules("libraries.toml")[kind]
    return Macro(f"is_{kind}", "library", f"library IN ({', '.join(map(quote, libraries))})")


def operands_macro() -> Macro:
    """Return the macro of the type of a product's operands by its name: narrow, half or wide."""
    cases = " ".join(
        f"WHEN regexp_matches(full_name, {quote(pattern)}, 'i') THEN {quote(kind)}"
        for kind, pattern in _rules("gemm.toml")["operands"].items()
    )
    return Macro("kernel_operands", "full_name", f"CASE {cases} END")


#: Numbers in the name of an engine's range, as in engines.toml.
_OF_ITERATION = ("batch", "prefills", "prefill_tokens", "decodes", "kv_tokens")


def engine_macro() -> Macro:
    """Return the macro of what the name of an engine's range says of an iteration.

    A struct of its class (prefill, decode, mixed, or NULL) and numbers; NULL for other names.
    """
    cases = " ".join(
        f"WHEN regexp_matches(name, {quote(rule['pattern'])}) THEN {_said(rule)}"
        for rule in _rules("engines.toml")["engine"]
    )
    return Macro("engine_iteration", "name", f"CASE {cases} END")


def _said(rule: Mapping[str, Any]) -> str:
    """Return the struct that an engine's pattern makes of a name."""
    pattern = rule["pattern"]
    groups = re.compile(pattern).groupindex
    numbers = {
        field: f"TRY_CAST(regexp_extract(name, {quote(pattern)}, {groups[field]}) AS BIGINT)"
        if field in groups
        else "NULL::BIGINT"
        for field in _OF_ITERATION
    }
    prefills, decodes = (f"coalesce({numbers[kind]}, 0) > 0" for kind in ("prefills", "decodes"))
    counted = (
        f"CASE WHEN {prefills} AND {decodes} THEN 'mixed' WHEN {prefills} THEN 'prefill' "
        f"WHEN {decodes} THEN 'decode' END"
    )
    fields = {"class": quote(rule["class"]) if "class" in rule else counted, **numbers}
    return "{" + ", ".join(f"{field}: {value}" for field, value in fields.items()) + "}"


def operator_macros() -> Iterator[Macro]:
    """Yield the macros of operators: from a kernel's name, and the first one of a chain."""
    yield _kernel_macro("operators.toml", "operator", "operators", "none")
    chained = _rules("operators.toml")["chained"]
    ranks = " ".join(f"WHEN {quote(name)} THEN {rank}" for rank, name in enumerate(chained))
    yield Macro("chain_rank", "operator", f"CASE operator {ranks} END")
    names = " ".join(f"WHEN {rank} THEN {quote(name)}" for rank, name in enumerate(chained))
    yield Macro("chain_operator", "rank", f"CASE rank {names} END")


def _kernel_macro(file: str, kind: str, kinds: str, otherwise: str) -> Macro:
    """Return the macro kernel_<kind>(function_name, full_name) of the rules in a file."""
    document = _rules(file)
    cases = []
    for rule in document["rule"]:
        if rule[kind] not in document[kinds]:
            raise ValueError(f"{file}: no {kind} {rule[kind]}")
        cases.append(f"WHEN {_test(rule)} THEN {quote(rule[kind])}")
    body = f"CASE {' '.join(cases)} ELSE {quote(otherwise)} END"
    return Macro(f"kernel_{kind}", "function_name, full_name", body)


def _test(rule: Mapping[str, Any]) -> str:
    """Return the SQL expression that says whether a rule holds for a kernel."""
    tests = " OR ".join(
        f"regexp_matches({column}, {quote(form.format(_either(rule[key])))}, 'i')"
        for key, (column, form) in _MATCHED.items()
        if key in rule
    )
    if "unless" not in rule:
        return tests
    return f"({tests}) AND NOT regexp_matches(function_name, {quote(_either(rule['unless']))}, 'i')"


#: Targets of a rule's patterns: a name, and the expression around the pattern.
_MATCHED = {
    "function": ("function_name", "{}"),
    "full": ("full_name", "{}"),
    "namespace": (
        "full_name",
        r"^(void |\w[\w:]*<[^<>]*>::type )?((\w+|<unnamed>|\(anonymous namespace\))::)*({0})::"
        r"|^_ZN(\d+[a-z_]\w*?)?\d+({0})\d",
    ),
}


@cache
def _rules(file: str) -> dict[str, Any]:
    return tomllib.loads(packaged("perfpipe.analysis", file))


def _either(patterns: str | list[str]) -> str:
    text = patterns if isinstance(patterns, str) else "|".join(patterns)
    return text.replace("{foreach}", FOREACH).replace("{optimizer}", OPTIMIZER)
