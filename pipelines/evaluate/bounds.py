"""The attainable time of the declared work: the roof that no kernel gets below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.evaluate.problem import Case
from perfpipe.pipelines.expression import evaluate
from perfpipe.pipelines.tasks import DTYPE_BYTES
from perfpipe.pipelines.workload import Work
from perfpipe.specs import find_spec

#: Names of types in workload files and in tables of peaks.
SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Bound:
    """The attainable time, ms; None with the reason `why`."""

    ms: float | None
    why: str | None = None


def bound_of(torch: Any, device: str, work: Work, case: Case) -> Bound:
    """Return max(FLOPs / peak, bytes / bandwidth) for a case, with nominal peaks.

    Raises InputError for a formula that names no size.
    """
    if work.flops is None and work.bytes is None:
        return Bound(None, "the workload does not declare its work")
    if device == "cpu":
        return Bound(None, "peaks are known for GPUs only")
    name = torch.cuda.get_device_name(device)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    spec = find_spec(name, sms)
    if spec is None:
        return Bound(None, f"peaks of {name} with {sms} SMs are unknown")
    own, times = work_of(work, case), []
    flops, bytes_, dtype = own.flops, own.bytes, own.dtype
    if bytes_ is not None and spec.bandwidth_gbs is not None:
        times.append(bytes_ / (spec.bandwidth_gbs * 1e9) * 1e3)
    if flops is not None and dtype in spec.dense:
        times.append(flops / (spec.dense[dtype] * 1e12) * 1e3)
    if not times:
        what = "DRAM bandwidth" if flops is None else f"{dtype} peak"
        return Bound(None, f"the {what} of {name} is unknown")
    return Bound(max(times))


@dataclass(frozen=True)
class CaseWork:
    """The declared work of one call; `dtype` is the type of the case, in terms of peaks."""

    flops: float | None
    bytes: float | None
    dtype: str


def work_of(work: Work, case: Case) -> CaseWork:
    """Return the work of a case; raises InputError for a formula that names no size."""
    dtype = SHORT.get(case.dtype, case.dtype)
    sizes = {**case.sizes, "dtype_bytes": DTYPE_BYTES.get(dtype, 0)}
    return CaseWork(_value(work.flops, sizes), _value(work.bytes, sizes), dtype)


def _value(formula: str | float | None, sizes: Mapping[str, float]) -> float | None:
    if formula is None:
        return None
    try:
        return evaluate(str(formula), sizes)
    except ValueError as error:
        raise InputError(f"work: {formula}: {error}") from error
