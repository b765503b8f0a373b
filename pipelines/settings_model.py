"""What perfpipe.toml and ~/.config/perfpipe/config.toml may hold."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.store import DEFAULT_STORE


class Settings(BaseModel):
    """perfpipe.toml: settings of a project, and of a user or a site."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = Field(str(DEFAULT_STORE), description="store directory, as --store")
    step_range: str | None = Field(
        None, description="regular expression of NVTX ranges that are steps, as --step-range"
    )
    slurm: Slurm = Field(
        default_factory=Slurm, description="batch jobs: what workload files state as `slurm`"
    )
