"""Contents of perfpipe.toml and ~/.config/perfpipe/config.toml."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.store import DEFAULT_STORE


class Settings(BaseModel):
    """perfpipe.toml: settings of a project, a user or a site."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = Field(str(DEFAULT_STORE), description="store directory, as --store")
    step_range: str | None = Field(
        None, description="regular expression of NVTX ranges to treat as steps, as --step-range"
    )
    slurm: Slurm = Field(
        default_factory=Slurm, description="batch jobs: same keys as `slurm` in a workload file"
    )
