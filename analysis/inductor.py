"""Reads the operators that torch.compile fused into a kernel from the kernel's name.

Inductor joins the names of the operators, in alphabetical order, with underscores, which names may
contain as well.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from itertools import pairwise

from perfpipe.files import packaged

_NAME = re.compile(r"^triton_(?:poi|red|per|tem|for|spl|mix|unk)_fused_(\w+?)(?:_\d+)?$")

#: A state of reading a name: where the next operator begins, and the operator before.
_State = tuple[int, str]


@cache
def _operators() -> frozenset[str]:
    text = packaged("perfpipe.analysis", "inductor.toml")
    return frozenset(tomllib.loads(text)["operators"].split())


@cache
def fused_operators(kernel: str) -> tuple[str, ...]:
    """Return the operators of a kernel; none for other kernels and for names without operators.

    A name that can be read in several ways is divided only where all of these ways divide it.

    >>> fused_operators("triton_per_fused__to_copy_add_native_layer_norm_12")
    ('_to_copy', 'add', 'native_layer_norm')
    >>> fused_operators("triton_poi_fused_add_index_select_3")
    ('add', 'index_select')
    """
    match = _NAME.match(kernel)
    if match is None or match[1].isdigit():
        return ()
    text = match[1]
    certain = _certain(text, in_order=True) or _certain(text)
    borders = pairwise([0, *(at + 1 for at in certain), len(text) + 1])
    return tuple(text[begin : end - 1] for begin, end in borders)


def _certain(text: str, *, in_order: bool = False) -> list[int]:
    """Return the underscores at which every reading of a text divides it.

    Older versions of Inductor do not sort the operators.
    """
    ends = [at for at, letter in enumerate(text) if letter == "_"] + [len(text)]
    reached: dict[_State, int] = {(0, ""): 1}
    steps: list[tuple[_State, _State]] = []
    # States are complete when they are visited: each step leads to a later place.
    for begin in [0, *(at + 1 for at in ends)]:
        for state in [state for state in reached if state[0] == begin]:
            for end in ends:
                name = text[begin:end]
                if end <= begin or name not in _operators() or (in_order and name <= state[1]):
                    continue
                following = (end + 1, name)
                steps.append((state, following))
                reached[following] = reached.get(following, 0) + reached[state]
    whole = len(text) + 1
    ways = {state: int(state[0] == whole) for state in reached}
    for state, following in reversed(steps):
        ways[state] += ways[following]
    through: Counter[int] = Counter()
    for state, count in reached.items():
        through[state[0]] += count * ways[state]
    total = through.pop(whole, 0)
    return sorted(at - 1 for at, count in through.items() if at and total and count == total)
