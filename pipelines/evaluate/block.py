"""The `evaluate` block of a workload file: the inputs and expected outputs of a candidate."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: An integer, or an expression in the sizes of a case.
Extent = int | str

Sizes = dict[str, int]

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")

#: Bytes of an element.
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
         "int16": 2, "int8": 1, "uint8": 1, "bool": 1}  # fmt: skip

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"
]

Special = Literal["noncontiguous", "large", "nan", "infinite", "empty"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Input(_Model):
    """An input: a tensor, or a number if `scalar` is set."""

    shape: list[Extent] = Field(
        [], description="dimensions: numbers, or expressions that use sizes"
    )
    dtype: DType | None = Field(None, description="data type; default: each of `dtypes` in turn")
    values: Literal["normal", "uniform", "positive", "integers"] = Field(
        "normal",
        description="normal: N(0, 1); uniform: 0 to 1; positive: 0.5 to 1.5; integers: from `low` "
        "to `high` - 1",
    )
    low: int = Field(0, description="smallest integer")
    high: Extent = Field(2, description="upper bound of the integers, exclusive")
    scalar: Extent | float | None = Field(
        None, description="number, or expression that uses the sizes, to pass instead of a tensor"
    )


class Output(_Model):
    """An output tensor."""

    shape: list[Extent] = Field(description="dimensions: numbers, or expressions that use sizes")
    dtype: DType | None = Field(None, description="data type; default: each of `dtypes` in turn")


class Tolerance(_Model):
    """Tolerance of a result: |found - exact| <= atol + rtol |exact|."""

    atol: float = Field(ge=0, description="absolute tolerance")
    rtol: float = Field(ge=0, description="relative tolerance")


class Limits(_Model):
    """Resource limits of a candidate."""

    seconds: float = Field(
        120, gt=0, description="time limit for loading the candidate and for each call, seconds"
    )
    memory_mb: int = Field(16384, ge=64, description="maximum host memory, MiB")
    file_mb: int = Field(
        2048,
        ge=1,
        description="maximum size of each file that the candidate writes, MiB; the "
        "headers that torch.compile precompiles for a CPU take several hundred MiB",
    )
    processes: int = Field(
        64, ge=1, description="maximum number of processes that the candidate may start"
    )
    device_mb: int = Field(
        8192, ge=1, description="memory for a batch's inputs and outputs on a GPU, MiB"
    )
    host_mb: int = Field(
        64, ge=1, description="memory for a batch's inputs and outputs on the CPU, MiB"
    )


class Evaluate(_Model):
    """How `perfpipe evaluate` checks and times kernels."""

    reference: str = Field(
        description="Python file next to the workload file; candidates cannot read it"
    )
    function: str = Field(
        "reference",
        description="reference function: takes the inputs (floating-point inputs in float64) "
        "and returns the outputs",
    )
    show_reference: bool = Field(
        True,
        description="whether agents are shown the source of the reference, which defines the "
        "problem",
    )
    module: str = Field(
        "kernel.py",
        description="file in the candidate's directory that defines the candidate's function",
    )
    entry: str = Field("run", description="name of the candidate's function")
    style: Literal["destination", "return"] = Field(
        "destination",
        description="destination: run(*inputs, *outputs) writes the outputs; return: "
        "run(*inputs) returns the outputs, and the measured time includes copying them",
    )
    inputs: dict[str, Input] = Field(min_length=1, description="inputs, in order")
    outputs: dict[str, Output] = Field(min_length=1, description="outputs, in order")
    dtypes: list[DType] = Field(
        ["float32"],
        min_length=1,
        description="data types to check; only the first data type is timed",
    )
    reduction: Extent = Field(
        1, description="number of terms summed per output element; sets the tolerance"
    )
    accumulate: Literal["float64", "float32", "float16", "bfloat16"] = Field(
        "float32", description="least precise data type in which a candidate may accumulate"
    )
    tolerance: dict[str, Tolerance] = Field(
        {},
        description="tolerances by data type; default: derived from the data type and `reduction`",
    )
    correctness: list[Sizes] = Field(
        min_length=1, description="sizes to check; should include odd numbers"
    )
    timing: list[Sizes] = Field([], description="sizes to time; these sizes are also checked")
    seeds: int = Field(2, ge=1, description="number of random inputs for each type and size")
    special: list[Special] = Field(
        ["noncontiguous", "large"],
        description="other inputs to check: noncontiguous, large (multiplied by `large`), nan, "
        "infinite, empty (each size listed under `empty` is set to 0, one at a time)",
    )
    large: float = Field(
        1000.0, gt=0, description="factor by which the inputs of `large` are multiplied"
    )
    empty: list[str] = Field([], description="names of the sizes that may be 0")
    forbidden: list[str] = Field(
        [], description="PyTorch operators that a candidate must not call, such as aten::_softmax"
    )
    baselines: dict[str, str] = Field(
        {}, description="candidates to compare with: directories by name"
    )
    launches: int = Field(
        5, ge=1, description="number of processes for each candidate and baseline, which alternate"
    )
    batches: int = Field(5, ge=1, description="number of batches of calls to time in each process")
    limits: Limits = Field(default_factory=Limits, description="resource limits of candidates")

    @model_validator(mode="after")
    def _is_consistent(self) -> Evaluate:
        if "empty" in self.special and not self.empty:
            raise ValueError("special: empty requires 'empty', the names of sizes that may be 0")
        names = {*self.correctness[0]}
        for sizes in (*self.correctness, *self.timing):
            if {*sizes} != names:
                raise ValueError(
                    f"all sizes must have the same names: {sorted(sizes)}, {sorted(names)}"
                )
        if unknown := {*self.empty} - names:
            raise ValueError(f"empty: no size named {', '.join(sorted(unknown))}")
        if clash := self.inputs.keys() & self.outputs.keys():
            raise ValueError(f"{', '.join(sorted(clash))}: both an input and an output")
        return self
