"""Arithmetic in workload files: numbers, names and + - * / // **, nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}

#: Keeps `9**9**9` from taking for ever.
_LARGEST_EXPONENT = 64


def evaluate(expression: str, names: Mapping[str, object]) -> float:
    """Return the value of an expression; raises ValueError for anything not allowed."""
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"'{expression}' is not an arithmetic expression") from error
    return _value(tree.body, names)


def _value(node: ast.expr, names: Mapping[str, object]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            known = names.get(name)
            if isinstance(known, bool) or not isinstance(known, (int, float)):
                numbers = sorted(k for k, v in names.items() if isinstance(v, (int, float)))
                raise ValueError(f"unknown name '{name}' (known numbers: {', '.join(numbers)})")
            return known
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left, names), _value(right, names)
            if isinstance(op, ast.Pow) and abs(b) > _LARGEST_EXPONENT:
                raise ValueError(f"exponent {b} is too large")
            if isinstance(op, (ast.Div, ast.FloorDiv)) and b == 0:
                raise ValueError("division by zero")
            return _OPERATORS[type(op)](a, b)
    raise ValueError(f"'{ast.unparse(node)}' is not allowed; use numbers, names and + - * / // **")
