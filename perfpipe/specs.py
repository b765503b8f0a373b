"""Vendor specifications of GPUs and of their SMs.

The files of LISTS list the peaks of GPUs.  architectures.toml lists the resources of an SM by
compute capability.  tensor_rates.toml lists the tensor-core rates by instruction.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from perfpipe.errors import InputError
from perfpipe.files import packaged

#: Lists of GPUs; the first explains the format.
LISTS = (
    "gpus.toml",
    "gpus_tesla.toml",
    "gpus_rtx.toml",
    "gpus_geforce.toml",
    "gpus_embedded.toml",
)

#: Types whose peaks refer to the clock of the CUDA cores.
_CUDA_CLOCK = ("fp64", "fp64_tensor", "fp32")

#: What drivers print before the names of the lists.
_BRAND = r"(?:(?:NVIDIA|Tesla|GeForce)\s+)*"


@dataclass(frozen=True)
class GpuSpec:
    """One GPU model: clocks in MHz, bandwidths in GB/s, peaks in TFLOP/s (int8: TOP/s).

    Link bandwidths are per direction.  `missing` maps types without a peak to the reason; also
    "clock" and "bandwidth", if they are None.
    """

    key: str
    name: str
    match: str
    cc: str
    sms: int
    memory_gb: tuple[int, ...]
    source: str
    clock_mhz: float | None = None
    bandwidth_gbs: float | None = None
    dense: Mapping[str, float] = field(default_factory=dict)
    sparse: Mapping[str, float] = field(default_factory=dict)
    pcie_gbs: float | None = None
    nvlink_gbs: float | None = None
    quoted_mhz: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def quoted(self, dtype: str) -> float | None:
        """Return the clock to which the peak of a type refers, MHz."""
        return self.quoted_mhz.get("cuda" if dtype in _CUDA_CLOCK else "tensor", self.clock_mhz)

    @property
    def types_without_peak(self) -> dict[str, str]:
        """The types that the hardware supports but that have no peak, with the reason."""
        return {k: why for k, why in self.missing.items() if k not in ("clock", "bandwidth")}

    @property
    def addresses(self) -> list[str]:
        """The addresses of the documents that `source` names."""
        return [address for title, address in documents().items() if title in self.source]


@dataclass(frozen=True)
class TensorRate:
    """Dense tensor-core rate per SM and cycle, for one instruction."""

    cc: str = field(metadata={"doc": "compute capability"})
    instruction: str = field(metadata={"doc": "mma (mma.sync, wmma) or wgmma"})
    dtype: str = field(metadata={"doc": "data type, as in gpu_peaks"})
    flop_per_cycle: float = field(
        metadata={"doc": "dense FLOP (int8: operations) per cycle and SM"}
    )
    source: str = field(metadata={"doc": "source of the rate"})

    @classmethod
    def documentation(cls) -> dict[str, str]:
        """Return the meaning of each field."""
        return {item.name: item.metadata["doc"] for item in fields(cls)}


@dataclass(frozen=True)
class Architecture:
    """Resources of an SM by compute capability; `barriers` is None if unlimited."""

    cc: str = field(metadata={"doc": "compute capability"})
    warps: int = field(metadata={"doc": "maximum warps per SM"})
    blocks: int = field(metadata={"doc": "maximum blocks per SM"})
    registers: int = field(metadata={"doc": "number of 32-bit registers per SM"})
    register_unit: int = field(
        metadata={"doc": "granularity of register allocation per warp, registers"}
    )
    smem_per_sm: int = field(metadata={"doc": "largest shared-memory carve-out, bytes"})
    smem_per_block: int = field(metadata={"doc": "maximum shared memory per block, bytes"})
    smem_unit: int = field(metadata={"doc": "granularity of shared-memory allocation, bytes"})
    smem_reserved: int = field(
        metadata={"doc": "shared memory that the driver reserves per block, bytes"}
    )
    barriers: int | None = field(
        default=None, metadata={"doc": "named barriers per SM; NULL if unlimited"}
    )
    dram_counters: bool = field(
        default=True,
        metadata={"doc": "whether ncu can measure DRAM; integrated GPUs have no such counters"},
    )

    @classmethod
    def documentation(cls) -> dict[str, str]:
        """Return the meaning of each field."""
        return {item.name: item.metadata["doc"] for item in fields(cls)}


@cache
def documents() -> dict[str, str]:
    """Return the addresses of vendor documents by title."""
    return _toml("gpu_documents.toml")


@cache
def architectures() -> dict[str, Architecture]:
    """Return the known architectures by compute capability."""
    listed = _toml("architectures.toml")
    return {cc: Architecture(cc=cc, **values) for cc, values in listed.items() if cc != "others"}


def architecture_of(cc: str) -> Architecture:
    """Return the architecture of a compute capability; raises InputError if it is unknown."""
    known = architectures()
    if cc in known:
        return known[cc]
    others = _toml("architectures.toml")["others"]
    what = others.get(cc) or others.get(cc.partition(".")[0])
    named = f": {what}" if what else ""
    raise InputError(f"unknown compute capability '{cc}'{named} (known: {', '.join(known)})")


@cache
def tensor_rates() -> tuple[TensorRate, ...]:
    """Return the known rates of tensor instructions, in the order of tensor_rates.toml."""
    return tuple(
        TensorRate(cc, instruction, dtype, rate, own["source"])
        for cc, own in _toml("tensor_rates.toml").items()
        for instruction in own["instructions"]
        for dtype, rate in own[instruction].items()
    )


@cache
def gpu_specs() -> tuple[GpuSpec, ...]:
    """Return every known GPU, in the order of the files."""
    listed = {key: own for name in LISTS for key, own in _toml(name).items()}
    likes = {key: own.pop("like") for key, own in listed.items() if "like" in own}
    stated = {
        key: GpuSpec(key=key, **{**own, "memory_gb": tuple(own["memory_gb"])})
        for key, own in listed.items()
    }
    return tuple(
        _scaled(spec, stated[likes[key]]) if key in likes else spec for key, spec in stated.items()
    )


def _scaled(spec: GpuSpec, like: GpuSpec) -> GpuSpec:
    """Return a GPU with the peaks that follow from its SMs and clock and another GPU's rates."""
    missing = {**like.types_without_peak, **spec.missing}
    if spec.clock_mhz is None:
        why = dict.fromkeys(like.dense, missing["clock"])
        return replace(spec, missing={**why, **missing})
    cycles = spec.sms * spec.clock_mhz / 1e6
    dense, sparse = (
        {
            dtype: float(f"{cycles * _per_cycle(like, dtype, peak):.4g}")
            for dtype, peak in peaks.items()
        }
        for peaks in (like.dense, like.sparse)
    )
    return replace(spec, dense=dense, sparse=sparse, missing=missing)


def _per_cycle(spec: GpuSpec, dtype: str, peak: float) -> float:
    """Return FLOP per cycle and SM: a power of two, from which a rounded peak may differ."""
    mhz = spec.quoted(dtype)
    if mhz is None:
        raise ValueError(f"{spec.key}: peaks without a clock cannot be scaled")
    return float(2 ** round(math.log2(peak * 1e6 / (spec.sms * mhz))))


def _toml(name: str) -> dict[str, Any]:
    text = packaged("perfpipe", name)
    return tomllib.loads(text)


def find_spec(device_name: str, sm_count: int | None = None) -> GpuSpec | None:
    """Return the spec of a device by its name in a report, or None if uncertain.

    The whole name has to match: a vGPU, a MIG slice, or a laptop GPU has other peaks.  A spec whose
    SM count contradicts the report is not returned, and none if several match.
    """
    found = [
        spec
        for spec in gpu_specs()
        if sm_count in (None, spec.sms)
        and re.fullmatch(f"{_BRAND}(?:{spec.match})", device_name.strip(), re.IGNORECASE)
    ]
    return found[0] if len(found) == 1 else None


def search_specs(words: str) -> list[GpuSpec]:
    """Return the specs that match a key, a device name, or part of a name."""
    wanted = words.casefold()
    exact = [spec for spec in gpu_specs() if wanted in (spec.key, spec.name.casefold())]
    if exact:
        return exact
    found = find_spec(words)
    if found:
        return [found]
    return [spec for spec in gpu_specs() if wanted in spec.name.casefold() or wanted in spec.key]
