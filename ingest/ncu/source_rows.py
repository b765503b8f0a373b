"""Rows of ncu_source: counts of the instructions of a launch."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from perfpipe.ingest.ncu.instances import Instances
from perfpipe.ingest.ncu.launches import SOURCE_STALLS
from perfpipe.ingest.ncu.names import stall_reason

_STALLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+?)(_not_issued)?")

Addresses = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]


class SourceCounts:
    """The counts of a launch by address, for instructions that were executed or sampled."""

    def __init__(self, instances: dict[str, Instances], function_start: int | None) -> None:
        self._by_pc = {name: found for name, found in instances.items() if not found.texts}
        names = ("smsp__pcsamp_sample_count", "inst_executed")
        told = [self._by_pc[name] for name in names if name in self._by_pc]
        keys = [found.keys[found.values != 0] for found in told]
        self.reached: Addresses = np.unique(np.concatenate(keys)) if keys else np.zeros(0, np.int64)
        least = min((int(found.keys.min()) for found in told if len(found.keys)), default=0)
        self._first = function_start or least

    def columns(self) -> dict[str, Counts | None]:
        """Return the columns of counts; None means not collected."""
        stalls: dict[str, Counts] = {}
        not_issued: Counts | None = None
        for name in self._by_pc:
            counts = self._counts(name)
            if counts is not None and (match := _STALLED.fullmatch(name)):
                if not match[2]:
                    stalls[stall_reason(match[1])] = counts
                else:
                    not_issued = counts if not_issued is None else not_issued + counts
        return {
            "pc": self.reached - self._first,
            "address": self.reached,
            "samples": self._counts("smsp__pcsamp_sample_count"),
            "samples_not_issued": not_issued,
            "executions": self._counts("inst_executed"),
            "thread_executions": self._counts("thread_inst_executed"),
            **{f"stall_{reason}": stalls.get(reason) for reason in SOURCE_STALLS},
        }

    def _counts(self, metric: str) -> Counts | None:
        """Return the values of a metric at the reached addresses, else 0."""
        found = self._by_pc.get(metric)
        if found is None:
            return None
        order = np.argsort(found.keys, kind="stable")
        keys = found.keys[order]
        at = np.searchsorted(keys, self.reached, side="right") - 1
        there = keys[at] == self.reached
        return np.where(there, found.values[order][at], 0).astype(np.int64)
