"""What the names of NVTX ranges say about PyTorch: modules, operators and phases of a step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.arrays import NONE

#: A call that perfpipe's start-up file named (perfpipe/injected/modules.py).
_MODULE = re.compile(
    r"nn\.Module (?P<model>[^\s:]+)(?:: (?P<path>.*))? \((?P<kind>[^\s()]+)\)", re.S
)

#: Calls that nsys --pytorch=functions-trace named: of any module, and what runs in one of a class.
_CALL = "torch.nn.modules.Module.__call__"
_FORWARD = re.compile(r"torch\.nn\.modules\.(?P<kind>\w+)\.forward")

#: How names of modules begin.
_MODULES = ("nn.Module ", "torch.nn.modules.")

#: The class of a call that contains no range with its class.
UNNAMED = "Module"

#: What PyTorch appends to the names of operators, and names of operators without it.
_NUMBERED = re.compile(
    r"(?P<name>.+?)(?P<numbers>(?:, (?:stashed )?seq ?= ?[0-9]+|, op_id ?= ?[0-9]+"
    r"|, (?:sizes|input_op_ids) ?= .*)+)",
    re.S,
)
_OPERATOR = re.compile(r"aten::|prims::|c10d::|nccl:|autograd::engine::")

#: A node of the backward pass with all that the engine does for it; the gradient of a parameter.
ENGINE = "autograd::engine::evaluate_function: "
_GRADIENT = "torch::autograd::AccumulateGrad"

#: Operators that send and receive data.
_SENDS = ("nccl:", "c10d::")

_OPTIMIZER = re.compile(r"Optimizer\.\w+#|torch\.optim\.\w+\.step$")
_BACKWARD = "torch.autograd.backward"

#: Phases by code.
PHASES = ("forward", "backward", "optimizer")
FORWARD, BACKWARD, OPTIMIZER = range(3)


def name_modules(names: Iterable[str | None]) -> bool:
    """Return whether any name is that of a module; reading all of each name takes longer."""
    return any(name is not None and name.startswith(_MODULES) for name in names)


class Names:
    """What the names of ranges say, by the code of the name; the last code is for no name.

    `module` is an index of `modules` (model, path, class); `kind` is an index of `kinds`, the
    classes that ranges of functions name, where `call` is a call of any class.  `operator` is an
    index of `operators`: `engine` and `gradient` are those of the backward pass, `sends` those of
    torch.distributed, and `graph` those with a sequence number.  NONE: the name says nothing.
    """

    def __init__(self, names: Sequence[str | None]) -> None:
        count = len(names) + 1
        self.modules: list[tuple[str, str, str]] = []
        self.kinds = [UNNAMED]
        self.operators: list[str] = []
        self.module, self.kind, self.operator = (np.full(count, NONE, np.int32) for _ in range(3))
        self.call, self.engine, self.gradient, self.graph, self.sends = (
            np.zeros(count, bool) for _ in range(5)
        )
        self.phase: npt.NDArray[np.int8] = np.full(count, NONE, np.int8)
        kinds, operators = {UNNAMED: 0}, dict[str, int]()
        for code, name in enumerate(names):
            if not name:
                continue
            if found := _MODULE.fullmatch(name):
                self.module[code] = len(self.modules)
                self.modules.append((found["model"], found["path"] or "", found["kind"]))
            elif name == _CALL:
                self.call[code] = True
                self.kind[code] = 0
            elif found := _FORWARD.fullmatch(name):
                self.kind[code] = kinds.setdefault(found["kind"], len(kinds))
            elif _OPTIMIZER.match(name):
                self.phase[code] = OPTIMIZER
            elif name == _BACKWARD:
                self.phase[code] = BACKWARD
            numbered = _NUMBERED.fullmatch(name)
            if numbered or _OPERATOR.match(name):
                plain = numbered["name"] if numbered else name
                self.engine[code] = plain.startswith(ENGINE)
                self.gradient[code] = plain == ENGINE + _GRADIENT
                self.graph[code] = bool(numbered and "seq" in numbered["numbers"])
                self.sends[code] = plain.startswith(_SENDS)
                plain = plain.removeprefix(ENGINE)
                self.operator[code] = operators.setdefault(plain, len(operators))
        self.kinds, self.operators = [*kinds], [*operators]
        if self.modules:
            # These also have names.
            self.kind[:] = NONE
