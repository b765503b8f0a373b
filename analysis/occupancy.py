"""The occupancy calculator without a report: the macros of macros.sql."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from perfpipe.analysis.session import Session
from perfpipe.database import open_database
from perfpipe.specs import Architecture


@dataclass(frozen=True)
class Kernel:
    """A launch: threads per block, registers per thread, bytes of shared memory per block.

    `smem` is static and dynamic shared memory, without the driver's share.
    """

    block: int
    registers: int
    smem: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps per SM, and the block limit of each resource."""

    blocks: int
    warps: int
    occupancy_pct: float
    limits: dict[str, int]

    @property
    def limiters(self) -> list[str]:
        """The resources with the lowest limit; ties are normal."""
        return [name for name, limit in self.limits.items() if limit == self.blocks]

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {**asdict(self), "limiters": self.limiters}


_LIMITS = """
    SELECT
        occupancy_limit_warps($block, $warps) AS warps,
        $blocks AS blocks,
        occupancy_limit_registers($block, $regs, $registers, $register_unit, $blocks) AS registers,
        occupancy_limit_shared_mem(
            occupancy_smem_allocated($smem, $smem_reserved, $smem_unit), $smem_per_sm, $blocks
        ) AS shared_mem,
        occupancy_limit_barriers($named, $barriers, $blocks) AS barriers
"""


def calculate(architecture: Architecture, kernel: Kernel) -> Occupancy:
    """Return the occupancy of a kernel with the largest shared-memory carve-out."""
    with calculator() as con:
        return calculate_in(con, architecture, kernel)


def curves(architecture: Architecture, kernel: Kernel) -> dict[str, list[tuple[int, float]]]:
    """Return occupancy (%) by registers and by block size, the rest unchanged."""
    with calculator() as con:

        def point(changed: Kernel) -> float:
            return calculate_in(con, architecture, changed).occupancy_pct

        registers = [
            (value, point(Kernel(kernel.block, value, kernel.smem, kernel.barriers)))
            for value in range(16, 256, 8)
        ]
        blocks = [
            (value, point(Kernel(value, kernel.registers, kernel.smem, kernel.barriers)))
            for value in range(32, 1025, 32)
        ]
    return {"registers": registers, "block size": blocks}


def calculator() -> Session:
    """Return a session that has perfpipe's macros and no store."""
    return Session(open_database())


def calculate_in(con: Session, architecture: Architecture, kernel: Kernel) -> Occupancy:
    """Return the occupancy of one of many kernels, in a session of `calculator`."""
    values = {**asdict(architecture), "block": kernel.block, "regs": kernel.registers}
    values |= {"smem": kernel.smem, "named": kernel.barriers}
    for name in ("cc", "smem_per_block", "dram_counters"):
        del values[name]
    result = con.execute(_LIMITS, values)
    names = [column[0] for column in result.description]
    found = dict(zip(names, result.fetchall()[0], strict=True))
    limits = {name: int(limit) for name, limit in found.items() if limit is not None}
    blocks = min(limits.values())
    warps = blocks * -(-kernel.block // 32)
    return Occupancy(blocks, warps, 100 * warps / architecture.warps, limits)
