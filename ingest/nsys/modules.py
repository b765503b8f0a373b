"""Places NVTX ranges in PyTorch's modules.

Each range lies in a module, an operator and a phase:

- a range of a module is in that module, a range inside another one where that one is;
- a node of the backward pass, with all that the engine does for it, is where the operator of the
  forward pass lies that made it (`autograd`);
- the gradient of a parameter is accumulated right after the node that computed it, and is there;
- a range of the optimizer is in no module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE, Codes, Ints, groups
from perfpipe.ingest.nsys.attribution import Attribution
from perfpipe.ingest.nsys.module_names import BACKWARD, FORWARD, Names
from perfpipe.ingest.nsys.ranges import Ranges
from perfpipe.ingest.sequences import depths

#: How a range was placed, by code.
HOW = ("range", "sequence", "order", "outside")
RANGE, SEQUENCE, ORDER, OUTSIDE = range(4)


@dataclass
class Places:
    """Where ranges are, by range_id: codes of a module, an operator, a phase, and how it is known.

    `modules` are model, path and class; NONE stands for unknown, and for no module.
    """

    module: Codes
    operator: Codes
    phase: npt.NDArray[np.int8]
    how: npt.NDArray[np.int8]
    modules: list[tuple[str, str, str]]
    operators: list[str]


def places_of(ranges: Ranges, found: Attribution, names: Names) -> Places:
    """Return where each range is."""
    placing = _Placing(ranges, found, names)
    # Operators of the forward pass do not lie in nodes, so they are known after the first pass.
    placing.place(None)
    placing.place(placing.places.module.copy())
    return placing.places


class _Placing:
    """Places ranges, from the outermost ones on."""

    def __init__(self, ranges: Ranges, found: Attribution, names: Names) -> None:
        count = len(ranges)
        self._names, self._name = (
            names,
            np.where(ranges.name == NONE, len(ranges.names), ranges.name),
        )
        self._around = np.where(ranges.enclosing == NONE, found.caller, ranges.enclosing)
        self._forward = _forward(ranges, found, names, self._name, self._around)
        self._node = names.engine[self._name] | (self._forward != NONE)
        depth = depths(self._around.astype(np.int32))
        order = np.argsort(depth, kind="stable")
        self._order = np.split(order, np.flatnonzero(np.diff(depth[order])) + 1)
        self._paths: dict[tuple[int, int], int] = {}
        self.places = Places(
            np.full(count, NONE, np.int32),
            np.full(count, NONE, np.int32),
            np.full(count, NONE, np.int8),
            np.full(count, NONE, np.int8),
            list(names.modules),
            names.operators,
        )

    def place(self, known: Codes | None) -> None:
        """Place all ranges; `known` are the modules of ranges of the forward pass."""
        places = self.places
        for rows in self._order:
            around = self._around[rows]
            for values in (places.module, places.operator, places.phase, places.how):
                values[rows] = np.where(around == NONE, NONE, values[around])
            self._enter_nodes(rows, known)
            self._enter_modules(rows)
            self._enter_operators(rows)
            phase = self._names.phase[self._name[rows]]
            stated = phase != NONE
            places.phase[rows[stated]] = phase[stated]
            places.module[rows[stated]], places.how[rows[stated]] = NONE, OUTSIDE

    def _enter_nodes(self, rows: Ints, known: Codes | None) -> None:
        """Place nodes of the backward pass where the operators are that made them."""
        places, around = self.places, self._around[rows]
        node = self._node[rows]
        places.phase[rows[node]] = BACKWARD
        # Whatever called the backward pass.
        outermost = rows[node & ((around == NONE) | ~self._node[around])]
        places.module[outermost] = places.how[outermost] = NONE
        paired = rows[self._forward[rows] != NONE]
        if known is not None and len(paired):
            module = known[self._forward[paired]]
            how = np.where(self._names.gradient[self._name[paired]], ORDER, SEQUENCE)
            places.module[paired] = module
            places.how[paired] = np.where(module == NONE, OUTSIDE, how)

    def _enter_modules(self, rows: Ints) -> None:
        """Place ranges of modules in these."""
        module = self._names.module[self._name[rows]]
        kind = self._names.kind[self._name[rows]]
        classes = np.flatnonzero(kind != NONE)
        if len(classes):
            module = module.copy()
            module[classes] = self._modules_of(rows[classes], kind[classes])
        there = module != NONE
        own = rows[there]
        self.places.module[own], self.places.how[own] = module[there], RANGE
        # Modules inside of the backward pass compute again what was not saved.
        self.places.phase[own[self.places.phase[own] == NONE]] = FORWARD

    def _modules_of(self, rows: Ints, kind: Codes) -> Codes:
        """Return modules of calls that have classes only: their paths consist of classes.

        The range of a class lies in that of the call, which does not know the class.
        """
        call = self._names.call
        above = self._around[rows]
        inner = (above != NONE) & call[self._name[above]] & ~call[self._name[rows]]
        above = np.where(inner, self._around[above], above)
        outer = np.where(above == NONE, NONE, self.places.module[above])
        pairs, place = np.unique(np.stack([outer, kind]), axis=1, return_inverse=True)
        codes = [self._path(*pair) for pair in zip(*pairs.tolist(), strict=True)]
        return np.array(codes, np.int32)[place.reshape(-1)]

    def _path(self, outer: int, kind: int) -> int:
        """Return the module of a class in another module, or in none."""
        if (outer, kind) not in self._paths:
            title, modules = self._names.kinds[kind], self.places.modules
            model, path = title, ""
            if outer != NONE:
                model, path, _ = modules[outer]
                path = f"{path}.{title}" if path else title
            self._paths[outer, kind] = len(modules)
            modules.append((model, path, title))
        return self._paths[outer, kind]

    def _enter_operators(self, rows: Ints) -> None:
        """Note operators; one without a module is outside of all, unless its node is unknown."""
        places, name = self.places, self._name[rows]
        operator = self._names.operator[name]
        there = operator != NONE
        places.operator[rows[there]] = operator[there]
        unknown = there & (places.how[rows] == NONE) & (places.phase[rows] != BACKWARD)
        places.how[rows[unknown]] = OUTSIDE
        # torch.distributed sends gradients of many modules at a time.
        sent = rows[self._names.sends[name] & (places.how[rows] == ORDER)]
        places.module[sent], places.how[sent] = NONE, OUTSIDE
        # Operators with a number make nodes.
        graph = self._names.graph[name] & (places.phase[rows] == NONE)
        places.phase[rows[graph]] = FORWARD


def _forward(ranges: Ranges, found: Attribution, names: Names, name: Codes, around: Codes) -> Codes:
    """Return the operator of the forward pass to which ranges of the backward pass belong."""
    if found.forward is None:
        return np.full(len(ranges), NONE, np.int32)
    forward = found.forward.copy()
    # The engine also adds up gradients, outside of the range of the node itself.
    inner = np.flatnonzero(forward != NONE)
    inner = inner[around[inner] != NONE]
    inner = inner[names.engine[name[around[inner]]]]
    forward[around[inner]] = forward[inner]
    engine = np.flatnonzero(names.engine[name])
    for _, own in groups(ranges.thread[engine]):
        rows = engine[own]
        gradient = names.gradient[name[rows]]
        before = np.maximum.accumulate(np.where(gradient, NONE, np.arange(len(rows))))
        gradient &= before != NONE
        forward[rows[gradient]] = forward[rows[before[gradient]]]
    return forward
