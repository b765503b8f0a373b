"""The filter of system calls, run by an interpreter of its instructions, against its tables."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.pipelines.evaluate import seccomp
from perfpipe.pipelines.evaluate.arena import _segment

PID = 4321
ALLOWED, REFUSED, MISSING = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS

TABLES: list[dict[str, Any]] = [seccomp._REFUSED, seccomp._OWN, seccomp._PRIORITY]

NUMBERS = st.integers(0, 460) | st.sampled_from([1 << 30, (1 << 30) + 41, (1 << 32) - 1])
ARGUMENTS = st.sampled_from([0, 1, 2, 3, 17, PID, PID + 1, 0x10000000, 0x00020000, (1 << 32) - 1])


def _run(machine: int, column: int, asked: tuple[int, int, int, int]) -> int:
    """Return what the filter says of a call: machine, number, and two arguments."""
    program = [*seccomp.instructions(machine, column, PID)]
    words = {4: asked[0], 0: asked[1], 16: asked[2], 24: asked[3]}
    at = held = 0
    while True:
        code, yes, no, operand = program[at]
        at += 1
        if code == 0x20:
            held = words[operand]
        elif code == 0x06:
            return operand
        else:
            true = {0x15: held == operand, 0x35: held >= operand, 0x45: bool(held & operand)}[code]
            at += yes if true else no


def _expected(column: int, number: int, first: int, second: int) -> int:
    """Return what the tables say."""
    refused, own, priority = ({v[column]: v for v in table.values()} for table in TABLES)
    if column == 0 and number >= 1 << 30:
        return MISSING
    if number == seccomp._CLONE3:
        return MISSING
    allowed = number not in refused and not (column == 0 and number in seccomp._REFUSED_X86)
    if number == seccomp._CLONE[column]:
        allowed = not first & seccomp._NAMESPACES
    if number in own:
        allowed = first in (0, PID)
    if number in priority:
        allowed = first != priority[number][2] and second in (0, PID)
    return ALLOWED if allowed else REFUSED


@pytest.mark.parametrize("name", seccomp._MACHINES)
@given(number=NUMBERS, first=ARGUMENTS, second=ARGUMENTS)
def test_the_filter_does_what_its_tables_say(
    name: str, number: int, first: int, second: int
) -> None:
    machine, column = seccomp._MACHINES[name]
    expected = _expected(column, number, first, second)
    assert _run(machine, column, (machine, number, first, second)) == expected
    assert _run(machine, column, (machine ^ 1, number, first, second)) == REFUSED


@pytest.mark.parametrize("name", seccomp._MACHINES)
def test_no_number_is_in_two_tables(name: str) -> None:
    column = seccomp._MACHINES[name][1]
    numbers = [one[column] for table in TABLES for one in table.values()]
    numbers += [seccomp._CLONE[column], seccomp._CLONE3]
    assert len({*numbers}) == len(numbers)
    assert len([*seccomp.instructions(*seccomp._MACHINES[name], PID)]) < 4096


@given(st.integers(1, 1 << 40))
def test_shared_memory_of_a_gpu_fills_its_segment(size: int) -> None:
    made = _segment(size)
    assert made >= size
    assert made >= 10 << 20
    assert made % (2 << 20) == 0
    assert made < size + (22 << 20)
