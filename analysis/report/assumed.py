"""What bounds on gains assume, in words."""

from __future__ import annotations

#: What a bound assumes, by the floor that decides it.
_ASSUMED = {
    "work": "the same work at 100 % SOL",
    "instructions": "the same instructions",
    "memory": "the same memory traffic",
    "dram": "the same DRAM traffic",
    "half_dram": "half of the DRAM traffic",
    "half_memory": "half of the traffic that limits it",
    "l2": "the same L2 traffic",
    "returns": "the same traffic from L2 to the SMs",
    "l1": "the same L1 traffic",
    "unconflicted": "the same shared-memory accesses without bank conflicts",
    "flops": "the same FLOPs at the peak of their type",
    "tensor": "the same FLOPs on tensor cores in FP16 or BF16",
    "narrower": "the same FLOPs in the next narrower type",
    "bytes": "that each byte moves once, at the peak bandwidth",
    "chain": "that of a chain of kernels only the first read and the last write stay",
    "issue": "the same work of each thread, without divergence",
    "balanced": "SMs that all work equally long",
    "whole_waves": "blocks that take equally long, without a partial wave",
    "nothing": "that the kernel goes away and its neighbor takes no longer",
    "busy": (
        "that idle time goes, except where code is loaded or the host works for long after a wait "
        "for the GPU, and that what both do takes as long as now"
    ),
    "synced": (
        "that idle time goes, except where the host waits for the GPU, loads code, or works for "
        "long after such a wait, and that what both do takes as long as now"
    ),
    "unsynced": (
        "that idle time goes, except where code is loaded, and that the GPU's work and long work "
        "of the host, side by side, take as long as now"
    ),
    "elsewhere": (
        "that the GPU's work, the loading of code, and what the host does besides reading back and "
        "launching, take as long as now"
    ),
    "waiting": "that no rank waits, and everything else takes as long as now",
    "start": "that no rank waits in the first collective, and everything else takes as long as now",
    "others": "that everything else takes as long as now",
    "other_launches": "that all other launches take as long as now",
    "around": "that its own kernels go, and those around them take as long as now",
    "hidden": "that it hides behind compute, which takes as long as now",
    "link": "that its bytes cross the link at its peak, behind compute",
    "host": (
        "that the host takes as long as now to issue the step, without what tracing may add, and "
        "never waits for the GPU"
    ),
    "half_types": (
        "half the bytes at the same bandwidth, products in TF32 at twice the rate, and others in "
        "next to no time"
    ),
}


def assumption(floor: str) -> str:
    """Return what a bound assumes that this floor decides (kernel_floors, timeline_findings)."""
    return _ASSUMED[floor]
