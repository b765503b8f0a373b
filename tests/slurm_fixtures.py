"""Fixtures: Slurm clusters, which SLURM_CONF names while a test uses one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster, cluster

_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
_ACCOUNTING = ("slurmdbd", "sacctmgr", "mariadbd")


@pytest.fixture(scope="session")
def _slurm(shared: Path) -> Iterator[SlurmCluster]:
    _require(_PROGRAMS)
    with cluster(shared / "slurm") as found:
        yield found


@pytest.fixture(scope="session")
def _accounted_slurm(shared: Path) -> Iterator[SlurmCluster]:
    _require(_PROGRAMS + _ACCOUNTING)
    with cluster(shared / "slurm-accounting", accounting=True) as found:
        yield found


@pytest.fixture
def slurm(_slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """A cluster without accounting that all tests share: its daemons must run."""
    monkeypatch.setenv("SLURM_CONF", str(_slurm.conf))
    return _slurm


@pytest.fixture
def accounted_slurm(
    _accounted_slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> SlurmCluster:
    """A cluster with accounting that all tests share: its daemons must run."""
    monkeypatch.setenv("SLURM_CONF", str(_accounted_slurm.conf))
    return _accounted_slurm


@pytest.fixture
def own_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., SlurmCluster]]:
    """Start a cluster of the test's own, whose daemons it may stop: own_slurm(accounting=True)."""
    with ExitStack() as started:

        def start(**options: Any) -> SlurmCluster:
            _require(_PROGRAMS + (_ACCOUNTING if options.get("accounting") else ()))
            base = tmp_path / "slurm"
            found = started.enter_context(cluster(base, **options))
            monkeypatch.setenv("SLURM_CONF", str(found.conf))
            return found

        yield start


def _require(programs: tuple[str, ...]) -> None:
    from conftest import lacking

    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        lacking(f"needs {', '.join(missing)}")
    if os.geteuid() != 0:
        lacking("only root can start a Slurm cluster")
