"""Arithmetic in workload files: numbers, names and + - * / // **, nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from perfpipe.errors import brief

_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}

#: Longest expression, largest exponent and largest value: anything beyond is not a real amount of
#: work, and would take forever to evaluate.
_LONGEST, _LARGEST_EXPONENT, _LARGEST = 2_000, 64, 1e100


def evaluate(expression: str, names: Mapping[str, object]) -> float:
    """Return the value of an expression; raises ValueError for anything not allowed."""
    if len(expression) > _LONGEST:
        raise ValueError(f"the expression has more than {_LONGEST:,} characters")
    try:
        return _value(ast.parse(expression, mode="eval").body, names)
    except SyntaxError as error:
        raise ValueError(f"'{brief(expression)}' is not an arithmetic expression") from error
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"'{brief(expression)}' is nested too deeply") from error


def _value(node: ast.expr, names: Mapping[str, object]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name):
            known = names.get(name)
            if isinstance(known, bool) or not isinstance(known, (int, float)):
                numbers = sorted(k for k, v in names.items() if isinstance(v, (int, float)))
                raise ValueError(f"unknown name '{name}' (known numbers: {', '.join(numbers)})")
            return _bounded(known)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left, names), _value(right, names)
            if isinstance(op, ast.Pow) and abs(b) > _LARGEST_EXPONENT:
                raise ValueError(f"exponent {b} is too large")
            if isinstance(op, (ast.Div, ast.FloorDiv)) and b == 0:
                raise ValueError("division by zero")
            if isinstance(op, ast.Pow) and b < 0 and a == 0:
                raise ValueError("division by zero")
            return _bounded(_OPERATORS[type(op)](a, b))
    what = brief(ast.unparse(node))
    raise ValueError(f"'{what}' is not allowed; use numbers, names and + - * / // **")


def _bounded(value: complex) -> float:
    """Return the value if it can be an amount of work."""
    if isinstance(value, complex):
        raise ValueError("the root of a negative number is not a real number")
    if not abs(value) <= _LARGEST:
        raise ValueError(f"a value is larger than {_LARGEST:g}")
    return value
