"""Where, when and in which environment a configuration was measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfpipe.columns import column
from perfpipe.secrets import hidden, is_secret_variable


@dataclass(frozen=True)
class Git:
    """What is checked out where a program runs; `branch` is None if detached."""

    commit: str = field(
        metadata=column(
            "VARCHAR", "commit of the Git repository in which the program ran", "git_commit"
        )
    )
    branch: str | None = field(
        default=None,
        metadata=column("VARCHAR", "branch that was checked out in the repository", "git_branch"),
    )
    dirty: bool = field(
        default=False,
        metadata=column(
            "BOOLEAN", "whether files in the repository differed from git_commit", "git_dirty"
        ),
    )

    committed_at: str | None = field(
        default=None,
        metadata=column("VARCHAR", "time of git_commit, UTC", "git_committed_at"),
    )

    @property
    def name(self) -> str:
        """The short commit id, with + if files differ from it."""
        return self.commit[:9] + ("+" if self.dirty else "")


@dataclass(frozen=True)
class Ran:
    """Where and when a configuration was measured.

    Facts about this machine (`host`, `gpus`: UUIDs of the usable GPUs, `environment`, `packages`,
    `machine`) are None if programs run elsewhere.  `job` is the job of a scheduler, as JOB_INDEX;
    `exit_code` is the exit code of the program; `git` is None outside of a repository.
    """

    started_at: str = field(metadata=column("VARCHAR", "start of the measurement, UTC"))
    ended_at: str = field(metadata=column("VARCHAR", "end of the measurement, UTC"))
    seconds: float = field(
        metadata=column(
            "DOUBLE", "wall time of all executions of the program and of ingesting the reports, s"
        )
    )
    host: str | None = field(
        default=None,
        metadata=column("VARCHAR", "name of the machine on which the program ran", "node"),
    )
    gpus: tuple[str, ...] | None = field(
        default=None, metadata=column("VARCHAR[]", "UUIDs of the GPUs that the program could use")
    )
    job: str | None = field(default=None, metadata=column("VARCHAR", "scheduler job, as JOB_INDEX"))
    attempt: int = field(
        default=1,
        metadata=column(
            "BIGINT", "number of times that the configuration was started, including this time"
        ),
    )
    exit_code: int | None = None
    environment: dict[str, str] | None = field(
        default=None,
        metadata=column(
            "VARCHAR",
            "environment variables that the workload sets or that GPU libraries read, as JSON; "
            "variables whose names suggest secrets are excluded",
        ),
    )
    packages: dict[str, str] | None = field(
        default=None,
        metadata=column("VARCHAR", "versions of the relevant Python packages, as JSON"),
    )
    machine: str | None = field(
        default=None,
        metadata=column(
            "VARCHAR",
            "models of the GPUs that the program could use; the CPU model if there were no GPUs",
        ),
    )
    git: Git | None = None

    def __post_init__(self) -> None:
        if self.environment is not None:
            told = {n: v for n, v in self.environment.items() if not is_secret_variable(n)}
            object.__setattr__(self, "environment", hidden(told))
