"""Short names of kernels: the function, and the functor or operator inside its template.

A kernel has forms with ever more detail, and of these the first that no other kernel has: no two
rows of a table read the same.  Tools spell names differently; the same kernel has the same short
name in all reports that are open.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from perfpipe.analysis.demangled import Term, parse_function
from perfpipe.analysis.inductor import fused_operators
from perfpipe.database import create_table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_Key = TypeVar("_Key", bound=Hashable)

#: Characters of a short name at most.
LONGEST = 60

#: How short names spell the types of elements.
_TYPES = {
    "BFloat16": "bf16", "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16", "bfloat16_t": "bf16",
    "Half": "half", "__half": "half", "half_t": "half", "half": "half", "float": "float",
    "double": "double", "int": "int", "unsigned int": "uint", "long": "long",
    "unsigned long": "ulong", "long long": "long", "unsigned long long": "ulong",
    "short": "short", "unsigned short": "ushort", "char": "char", "signed char": "char",
    "unsigned char": "uchar", "bool": "bool", "Float8_e4m3fn": "e4m3", "Float8_e5m2": "e5m2",
    "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2", "float_e4m3_t": "e4m3",
    "float_e5m2_t": "e5m2", "int8_t": "char", "uint8_t": "uchar", "int32_t": "int",
    "int64_t": "long", "uint32_t": "uint", "uint64_t": "ulong",
}  # fmt: skip

_REAL = frozenset("bf16 half float double e4m3 e5m2".split())

#: Arguments that say how a kernel runs or indexes, not what it computes.
_PLUMBING = re.compile(
    r"polic|hub|traits|metadata|calculator|state|iterator|array|tuple|info|params|load|store"
    r"|layout|opaque|size|allocator|accessor|shape|stride|pipeline|schedule",
    re.IGNORECASE,
)

#: Names of functors and operators.
_FUNCTOR = re.compile(
    r"func|ops?(?:_t)?$|op_|kernel|epilogue|gemm|conv|cutlass|attn|attention|fmha|norm|softmax"
    r"|^(?:plus|minus|multiplies|divides|modulus|negate|maximum|minimum|less|greater|equal_to"
    r"|less_equal|greater_equal|not_equal_to|logical_\w+|bit_\w+|min|max|sum|argm(?:in|ax))$"
    r"|sqrt|lerp|sum$|max$|min$|agent|transform|predicate|compare",
    re.IGNORECASE,
)

#: What a name can do without when it is too long.
_WORDY = re.compile(r"_?(?:functor|kernel|kernel_impl|kernel_cuda|(?:cuda)?kernelimpl)$", re.I)

#: What long generated names have in common; what follows says more.
_BOILERPLATE = re.compile(r"(?<=^cudnn_)generated_fort_native_")

#: The same of the names of xmma (cuBLAS, cuDNN), which list all that a kernel was made for: words
#: that most of them have, and how they spell types; further what tells few of them apart.
_XMMA = (
    (re.compile(r"_(?:implicit_gemm|execute|kernel|_?5x_\w+)(?=_|$)"), ""),
    (re.compile(r"_[a-z]+\d+[a-z]+\d+_(t?b?f\d+|[ei]\d\w*?)[fi]\d+_[a-z]+\d+(?=_)"), r"_\1"),
    (re.compile(r"_tilesize(?=\d)"), "_"),
)
_XMMA_FEW = re.compile(
    r"_(?:nhwckrsc|warp(?:group)?size\d\w*?|g1|align\w\d+|indexed|tensor\d\w*?)(?=_|$)"
)

_BRACKETS = re.compile(r"[<>()\[\]{}]")


def make_known_kernels(con: DuckDBPyConnection) -> None:
    """Create the private table of the kernels of each report by full name, from both profilers."""
    # The names stay as they are stored until they are few: millions of kernels have hundreds.
    found = con.execute(
        """
        SELECT report_id, coalesce(demangled, name) AS demangled, min(name)
        FROM (
            SELECT DISTINCT report_id, demangled, name FROM nsys_kernels
            UNION
            SELECT DISTINCT report_id, kernel_demangled, kernel_name FROM ncu_launches
        )
        WHERE coalesce(demangled, name) IS NOT NULL
        GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    of_report: dict[str, list[str]] = {}
    for report, demangled, _ in found:
        of_report.setdefault(report, []).append(demangled)
    short = short_names(of_report.values())
    columns = [
        (c, "VARCHAR", "") for c in ("report_id", "demangled", "name", "short_name", "operators")
    ]
    rows = [
        (report, full, name, short[full], ", ".join(fused_operators(name or full)) or None)
        for report, full, name in found
    ]
    create_table(con, "_known_kernels", columns, rows)


def short_names(reports: Iterable[Collection[str]]) -> dict[str, str]:
    """Return a short name for each full name of a kernel, given the full names in each report.

    Names of one report differ; names of several are the same where the kernel is.

    >>> add, fill = "k<(int)4, at::AddFunctor<float>>(int)", "k<(int)4, at::Fill<float>>(int)"
    >>> short_names([[add, fill]])[add]
    'k<AddFunctor<float>>'
    """
    reports = [*reports]
    terms = {name: parse_function(name) for names in reports for name in names}
    chosen = {term: _form(term, 0) for term in terms.values()}
    for group in _alike(chosen):
        chosen |= _told_apart(group)
    for group in _alike(chosen):
        chosen |= {term: _signed(chosen[term], repr(term)) for term in group}
    short = {name: chosen[term] for name, term in terms.items()}
    for names in reports:
        # They differ in namespaces or parameters only.
        for same in _alike({name: terms[name] for name in names}):
            short |= {name: _signed(chosen[terms[name]], name) for name in same}
    return short


def _signed(short: str, full: str) -> str:
    """Return a short name with a digest, where nothing that can be shown tells kernels apart."""
    digest = hashlib.sha256(full.encode(errors="replace")).hexdigest()[:6]
    return f"{elide(short, LONGEST - 7)}~{digest}"


def _alike(chosen: Mapping[_Key, Hashable]) -> list[list[_Key]]:
    """Return the groups of keys that have the same value."""
    groups: dict[Hashable, list[_Key]] = {}
    for key, value in chosen.items():
        groups.setdefault(value, []).append(key)
    return [group for group in groups.values() if len(group) > 1]


def _told_apart(alike: Sequence[Term]) -> dict[Term, str]:
    """Return the plainest forms that differ; where none do, those of which the most differ."""
    forms = [{term: _form(term, level) for term in alike} for level in range(_LEVELS)]
    forms.append(forms[0] | _where_they_differ(alike))
    return max(forms, key=lambda form: len({*form.values()}))


def _where_they_differ(alike: Sequence[Term]) -> dict[Term, str]:
    """Return long plain names with their beginning and the part from where they differ."""
    plain = {term: _BOILERPLATE.sub("…", _name(term)) for term in alike if not term.arguments}
    pairs = zip(min(plain.values(), default=""), max(plain.values(), default=""), strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
    found = {}
    for term, text in plain.items():
        if len(text) > LONGEST:
            end = _cut(text[max(_BEGINNING, same - 4) :], LONGEST - _BEGINNING - 1)
            found[term] = f"{text[: LONGEST - 1 - len(end)]}…{end}"
    return found


#: Characters of a long name that are kept at least before those that tell it from others.
_BEGINNING = 14

#: Forms: the functors; also what wraps them; also numbers; also types; everything.
_LEVELS = 5
_WRAPPED, _NUMBERS, _ALL_TYPES, _EVERYTHING = range(1, _LEVELS)


@cache
def _form(function: Term, level: int) -> str:
    """Return a form of a name, with fewer types and shorter words if it is too long."""
    name = _name(function)
    if not function.arguments and len(name) > LONGEST and "_xmma_" in name:
        name = _of_xmma(name, level)
    shown = _shown(function, level)
    for wordy, typed in ((True, len(shown)), (False, len(shown)), (False, 1), (False, 0)):
        parts = [
            _argument(item, level, wordy, place < typed)
            for place, item in enumerate(shown)
            if typed or not _is_type(item)
        ]
        text = _with(name, parts, level)
        if len(text) <= LONGEST:
            return text
    while parts and _digits(parts[-1]):
        parts.pop()
        if len(text := _with(name, [*parts, "…"], level)) <= LONGEST:
            return text
    room = LONGEST - len(name) - 2
    first = next((_BRACKETS.split(part)[0] for part in parts if not _digits(part)), "")
    if room < 12 or not first:
        return elide(name, LONGEST)
    return f"{name}<{elide(first, room)}>"


def _of_xmma(name: str, level: int) -> str:
    """Return a name of xmma in fewer words, at a higher level with more of them.

    >>> _of_xmma("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_kernel__5x_cublas", 0)
    'sm90_xmma_gemm_tf32_nn_n_128x256x32'
    """
    for words, instead in _XMMA:
        name = words.sub(instead, name)
    return _XMMA_FEW.sub("", name) if level < _WRAPPED else name


def _shown(function: Term, level: int) -> list[Term]:
    """Return the template arguments of a kernel that a form shows."""
    if level >= _EVERYTHING:
        return [*function.arguments]
    functors = [item for item in function.arguments if _has_functor(item)]
    if not functors and _GENERIC.fullmatch(function.name):
        functors = [a for a in function.arguments if not a.number and not _is_type(a)][:1]
    return [
        item
        for item in function.arguments
        if item in functors
        or (level >= _NUMBERS and item.number)
        or (_is_type(item) and (level >= _ALL_TYPES or (not functors and _is_real(item))))
    ]


#: Kernels of libraries whose own name says nothing.
_GENERIC = re.compile(r"kernel\d?|device_kernel|_kernel_agent|static_kernel|kernel_?entry", re.I)

#: Functors that only carry another one.
_CARRIER = re.compile(r"func_wrapper_t|ReduceOp|gpu_kernel_impl\w*|distribution_\w+_kernel")


def _argument(item: Term, level: int, wordy: bool, typed: bool) -> str:
    """Return a template argument as text."""
    if item.number:
        return item.name
    name = _name(item) if wordy else _WORDY.sub("", _name(item)) or _name(item)
    inner = [] if level >= _EVERYTHING else [a for a in item.arguments if _has_functor(a)]
    types = [argument for argument in item.arguments if _is_type(argument)]
    types = types or [argument for argument in item.parameters if _is_type(argument)]
    if inner and (level < _WRAPPED or _CARRIER.fullmatch(item.name)):
        carried = _unique(_argument(functor, level, wordy, typed) for functor in inner)
        if level >= _NUMBERS:
            carried += [a.name for a in item.arguments if a.number]
        # A product of bf16 is computed in float: then what wraps the functor tells the type.
        stated = {a.name for functor in inner for a in _within(functor)}
        if not types or types[0].name in stated or _CARRIER.fullmatch(item.name):
            return ", ".join(carried)
        return _with(name, [_name(types[0]), *carried], level)
    if level >= _EVERYTHING:
        shown = [*item.arguments]
    else:
        shown = [*types] if typed and (not inner or level >= _ALL_TYPES) else []
        shown += [argument for argument in item.arguments if argument.number and level >= _NUMBERS]
        shown += inner
    text = _with(name, (_argument(part, level, wordy, typed) for part in shown), level)
    return f"{text}#{item.instance}" if item.instance > 1 else text


def _within(item: Term) -> Iterator[Term]:
    """Yield the terms inside a term."""
    for inner in (*item.arguments, *item.parameters):
        yield inner
        yield from _within(inner)


def _has_functor(item: Term) -> bool:
    if item.number or _is_type(item):
        return False
    if item.is_lambda:
        return True
    if _PLUMBING.search(item.name):
        return False
    return bool(_FUNCTOR.search(item.name)) or any(map(_has_functor, item.arguments))


def _is_type(item: Term) -> bool:
    return not item.arguments and not item.suffix and item.name in _TYPES


def _is_real(item: Term) -> bool:
    return _is_type(item) and _TYPES[item.name] in _REAL


def _name(item: Term) -> str:
    return _TYPES.get(item.name, _BRACKETS.sub("", item.name)) + item.suffix or "?"


def _with(name: str, arguments: Iterable[str], level: int) -> str:
    kept = [text for text in arguments if text] if level >= _ALL_TYPES else _unique(arguments)
    return f"{name}<{', '.join(kept)}>" if kept else name


def _unique(texts: Iterable[str]) -> list[str]:
    """Return texts without repetitions, but all numbers."""
    kept: list[str] = []
    for text in texts:
        if text and (_digits(text) or text not in kept):
            kept.append(text)
    return kept


def _digits(text: str) -> bool:
    return text.lstrip("-").isdigit()


def elide(text: str, longest: int) -> str:
    """Return text, without its middle if it is longer: names differ least there."""
    if len(text) <= longest:
        return text
    text = _BOILERPLATE.sub("…", text)
    head = (longest - 1) * 2 // 3
    return _BRACKETS.sub("", f"{text[:head]}…{text[head + 1 - longest :]}")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
