"""What Slurm's reasons for a waiting job mean, and which of them do not pass by themselves.

Source: Slurm's documentation, "Job Reason Codes" and "Resource Limits".
"""

from __future__ import annotations

import re

#: Reasons that pass when the cluster has room, by pattern.
_PASSES = {
    "Priority": "jobs with a higher priority are first",
    "Resources": "no free node has what the job requests",
    "Dependency": "the job starts after other jobs",
    "BeginTime": "its start time has not come",
    "Licenses": "no license is free",
    "Reservation": "its reservation has not started",
    "JobArrayTaskLimit": "the batch runs at most array_parallelism jobs at a time",
    "Cleaning": "Slurm is still cleaning up an earlier attempt",
    "ReqNodeNotAvail": "nodes that it needs are down, reserved or drained",
    "NodeDown": "a node that it needs is down",
    "MaxJobCount": "the cluster has as many jobs as it allows",
    r"(Assoc|QOS)Grp\w+|QOSUsageThreshold": "the jobs of the account or QOS use what they may use",
    r"(Assoc|QOS)MaxJobs\w*|QOSMax\w+PerUser\w*|Max\w+PerAccount|AssocMaxSubmit\w*": (
        "you or your account have as many jobs, or resources, as allowed"
    ),
}

#: Reasons that stay until the request changes, or until somebody acts.
_STAYS = {
    "PartitionTimeLimit": "its time limit is above that of the partition",
    "PartitionNodeLimit": "it requests more nodes than the partition allows",
    "PartitionConfig": "the partition does not allow what the job requests",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition starts no jobs",
    "BadConstraints": "no node has what the job requests",
    "DependencyNeverSatisfied": "a job that it waits for failed",
    "JobHeldUser": "it is held; 'scontrol release' lets it start",
    "JobHeldAdmin": "an administrator holds it",
    "AccountNotAllowed": "the partition does not allow the account",
    "InvalidAccount": "the account does not exist",
    "InvalidQOS": "the QOS does not exist or is not allowed",
    "QOSNotAllowed": "the partition or the account does not allow the QOS",
    r"(Assoc|QOS)Max\w+(PerJob|PerNode)\w*|AssocMax\w+|QOSMax\w+": (
        "it requests more than its account or QOS allows for a job"
    ),
    "QOSMin\\w+": "it requests less than its QOS demands",
}

_NAME = re.compile(r"\w+")


def explained(reason: str | None) -> str | None:
    """Return a reason of squeue with what it means: `Resources: no free node has ...`.

    A reason that perfpipe does not know stays as it is.
    """
    meaning = _meaning(reason, _PASSES)
    if meaning:
        return f"{reason}: {meaning}"
    meaning = _meaning(reason, _STAYS)
    return f"{reason}: {meaning}, so it does not start" if meaning else reason


def stays(reason: str | None) -> bool:
    """Return whether a job with this reason, also an explained one, does not start by itself."""
    return not _meaning(reason, _PASSES) and bool(_meaning(reason, _STAYS))


def _meaning(reason: str | None, known: dict[str, str]) -> str | None:
    name = _NAME.match(reason or "")
    if name is None:
        return None
    return next((text for pattern, text in known.items() if re.fullmatch(pattern, name[0])), None)
