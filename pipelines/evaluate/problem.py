"""Cases with inputs and exact results, by which candidates are judged; only the judge has them."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.block import BYTES, FLOATS, Evaluate, Extent, Input, Sizes
from perfpipe.pipelines.evaluate.expected import Accepted, Exact, Expected
from perfpipe.pipelines.evaluate.memory import free
from perfpipe.pipelines.evaluate.tolerance import allowed
from perfpipe.pipelines.expression import evaluate

#: Inputs and outputs of a call above this size, bytes, are large: they are drawn fewer times.
LARGE = 256 << 20


@dataclass(frozen=True)
class Case:
    """Inputs of one kind: type, sizes, special property, and number."""

    dtype: str
    sizes: Sizes
    special: str = ""
    seed: int = 0

    @property
    def label(self) -> str:
        """The case as text: float16 m=5 n=37, nan."""
        sizes = (f"{name}={value}" for name, value in self.sizes.items())
        return f"{' '.join((self.dtype, *sizes))}{', ' if self.special else ''}{self.special}"


@dataclass(frozen=True)
class Made:
    """The type and shape of a tensor, or a number or a word in its place."""

    dtype: str
    shape: tuple[int, ...]
    number: float | int | str | None = None

    def bytes(self) -> int:
        """Return the size of the tensor; a number has none."""
        return 0 if self.number is not None else math.prod(self.shape) * BYTES[self.dtype]


@dataclass(frozen=True)
class Problem:
    """The task: `block` defines inputs and outputs, `reference` computes the expected results.

    `make` draws the inputs, `init` are arguments of the candidate's class where it has one.
    With `widens` the reference takes float64 for floating-point inputs, else their own type.
    `made` has the inputs and outputs of a case where the block does not.  `check` is the author's:
    it takes a case, inputs and outputs, and returns why these are wrong.  With `twins` a few
    elements of the inputs may be changed.  `given` are files that candidates get, by name.
    """

    name: str
    block: Evaluate
    reference: Callable[..., Any]
    path: Path
    make: Callable[[Any, Case, int, str], list[Any]] | None = None
    init: list[Any] | None = None
    init_seed: int = 0
    widens: bool = True
    twins: bool = True
    made: Callable[[Case], tuple[list[Made], list[Made]]] | None = None
    check: Callable[[Any, Case, Sequence[Any], Sequence[Any]], str | None] | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    forbidden: frozenset[str] = field(default_factory=frozenset)

    def cases(self, seed: int, *, timed: bool = True) -> list[Case]:
        """Return the cases to check, with seeds from `seed` on; includes those to be timed.

        Large inputs are drawn once.
        """
        block, numbers = self.block, itertools.count(seed)
        made = [
            Case(dtype, sizes, "", next(numbers))
            for dtype, sizes in itertools.product(block.dtypes, block.correctness)
            for _ in range(1 if self.bytes(Case(dtype, sizes)) > LARGE else block.seeds)
        ]
        if timed:
            made += [Case(block.dtypes[0], sizes, "", next(numbers)) for sizes in block.timing]
        for dtype, special in itertools.product(block.dtypes, block.special):
            if special == "empty":
                none = [{**block.correctness[0], name: 0} for name in block.empty]
                made += [Case(dtype, sizes, special, next(numbers)) for sizes in none]
                continue
            made += [
                Case(dtype, sizes, special, next(numbers))
                for sizes in block.correctness[-2:]
                if dtype in FLOATS or special == "noncontiguous"
            ]
        return made

    def inputs(self, case: Case) -> list[Made]:
        """Return type and shape of the inputs."""
        if self.made is not None:
            return self.made(case)[0]
        return [
            Made(one.dtype or case.dtype, self._shape(one.shape, case), self._number(one, case))
            for one in self.block.inputs.values()
        ]

    def outputs(self, case: Case) -> list[Made]:
        """Return type and shape of the outputs."""
        if self.made is not None:
            return self.made(case)[1]
        return [
            Made(one.dtype or case.dtype, self._shape(one.shape, case))
            for one in self.block.outputs.values()
        ]

    def bytes(self, case: Case) -> int:
        """Return the size of the inputs and outputs of a call."""
        return sum(made.bytes() for made in (*self.inputs(case), *self.outputs(case)))

    def drawn(self, torch: Any, case: Case, seed: int, device: str) -> list[Any]:
        """Return inputs, contiguous; the same seed gives the same."""
        if self.make is not None:
            return self.make(torch, case, seed, device)
        random = torch.Generator(device=device).manual_seed(seed)
        pairs = zip(self.block.inputs.values(), self.inputs(case), strict=True)
        return [
            made.number
            if made.number is not None
            else self._values(torch, one, made, case, random, device)
            for one, made in pairs
        ]

    def expected(self, torch: Any, case: Case, inputs: Sequence[Any]) -> Expected:
        """Return what the outputs must be; raises InputError if the reference fails."""
        if (check := self.check) is not None:
            return Accepted(lambda outputs: check(torch, case, inputs, outputs))
        block, reduction = self.block, self.reduction(case)
        may = [
            allowed(made.dtype, reduction, block.accumulate, block.tolerance)
            for made in self.outputs(case)
        ]
        return Exact(torch, self.exact(torch, case, inputs), may, reduction)

    def exact(self, torch: Any, case: Case, inputs: Sequence[Any]) -> list[Any]:
        """Return the expected outputs; raises InputError if the reference fails.

        Where float64 does not fit, they are computed in the type of the inputs.
        """
        floats = [
            one for one in inputs if isinstance(one, torch.Tensor) and one.is_floating_point()
        ]
        widens = self.widens and wide_fits(torch, floats, self.outputs(case))
        try:
            found = self._referred(torch, inputs, widens)
        except torch.OutOfMemoryError as error:
            raise InputError(f"{self.path}: the reference does not fit: {error}") from error
        except Exception as error:
            raise InputError(
                f"{self.path}: the reference fails for {case.label}: {error}"
            ) from error
        found = found.values() if isinstance(found, dict) else found
        found = [found] if isinstance(found, torch.Tensor) else list(found)
        shapes = [made.shape for made in self.outputs(case)]
        if [tuple(one.shape) for one in found] != shapes:
            got = [tuple(one.shape) for one in found]
            raise InputError(
                f"{self.path}: {case.label}: the reference returns {got}, not {shapes}"
            )
        return found

    def _referred(self, torch: Any, inputs: Sequence[Any], widens: bool) -> Any:
        wide = [
            one.double()
            if widens and isinstance(one, torch.Tensor) and one.is_floating_point()
            else one
            for one in inputs
        ]
        try:
            with torch.no_grad():
                return self.reference(*wide)
        except torch.OutOfMemoryError:
            if not widens:
                raise
        del wide
        torch.cuda.empty_cache()
        return self._referred(torch, inputs, widens=False)

    def reduction(self, case: Case) -> float:
        """Return the number of terms in the sum of an output element."""
        return _number(self.block.reduction, case.sizes, self.path)

    def _shape(self, extents: Sequence[Extent], case: Case) -> tuple[int, ...]:
        return tuple(int(_number(extent, case.sizes, self.path)) for extent in extents)

    def _number(self, one: Input, case: Case) -> float | int | None:
        if one.scalar is None:
            return None
        if isinstance(one.scalar, str):
            found = _number(one.scalar, case.sizes, self.path)
            return int(found) if found == int(found) else found
        return one.scalar

    def _values(
        self, torch: Any, one: Input, made: Made, case: Case, random: Any, device: str
    ) -> Any:
        dtype = getattr(torch, made.dtype)
        kind = "integers" if made.dtype not in FLOATS else one.values
        if kind == "integers":
            high = 2 if made.dtype == "bool" else int(_number(one.high, case.sizes, self.path))
            low = 0 if made.dtype == "bool" else one.low
            drawn = torch.randint(low, high, made.shape, generator=random, device=device)
            return drawn.to(dtype)
        draw = torch.randn if kind == "normal" else torch.rand
        found = draw(made.shape, generator=random, device=device, dtype=torch.float32)
        found = found + 0.5 if kind == "positive" else found
        if case.special == "large":
            found = found * self.block.large
        found = found.to(dtype)
        if case.special in ("nan", "infinite") and found.numel():
            at = int(torch.randint(found.numel(), (1,), generator=random, device=device))
            found.view(-1)[at] = math.nan if case.special == "nan" else math.inf
        return found


def wide_fits(torch: Any, floats: Sequence[Any], outputs: Sequence[Made]) -> bool:
    """Return whether the device has room for inputs and outputs in float64."""
    count: int = sum(one.numel() for one in floats) + sum(math.prod(made.shape) for made in outputs)
    device = floats[0].device if floats else "cpu"
    return 8 * count <= max(LARGE, free(torch, str(device)))


def _number(given: Extent | float, sizes: Mapping[str, int], path: Path) -> float:
    if not isinstance(given, str):
        return given
    try:
        return evaluate(given, sizes)
    except ValueError as error:
        raise InputError(f"{path}: evaluate: {given}: {error}") from error


def reference_of(path: Path, function: str) -> Callable[..., Any]:
    """Return a function of a Python file; raises InputError."""
    found = getattr(module_of(path), function, None)
    if not callable(found):
        raise InputError(f"{path}: function {function} is not defined")
    return found  # type: ignore[no-any-return]


def module_of(path: Path, named: str | None = None) -> Any:
    """Return a Python file as a module; raises InputError, which names it `named`."""
    if not path.is_file():
        raise InputError(f"{path}: no such reference file")
    spec = importlib.util.spec_from_file_location(f"perfpipe_reference_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    made = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except Exception as error:
        raise InputError(f"{named or path}: {type(error).__name__}: {error}") from error
    return made
