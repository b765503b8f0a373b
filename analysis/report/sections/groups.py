"""Groups of ranks: mesh, traffic, pipelines, experts and late ranks."""

from __future__ import annotations

from perfpipe.analysis.report.declare import GPU, Col, GpuTable, JobTable, Missing, SectionSpec

#: Identifies the job on hover, and in JSON.
_JOB = Col("job", "Job", detail=True)

#: Steps of all ranks that the table of lateness shows.
_LATE_STEPS = 100

RANK_MESH = JobTable(
    "rank_mesh",
    "Mesh",
    (
        Col("mesh", "Mesh"),
        Col("ranks", "Ranks", "int"),
        Col("captured", "Captured", "int"),
        _JOB,
    ),
    order="job",
    where="ranks > 1",
    key="{mesh}",
)

GROUP_TRAFFIC = JobTable(
    "group_traffic",
    "Traffic of the groups",
    (
        Col("kind", "Kind"),
        Col("ranks", "Ranks"),
        Col("count", "Kernels per rank", "number"),
        Col("bytes", "Bytes per rank", "bytes"),
        Col("exposed_ns", "Exposed", "ns"),
        Col("exposed_pct", "Exposed", "pct", "% of the window"),
        Col("waiting_ns", "Waiting time", "ns"),
        Col("bus_bytes_per_s", "Bus bandwidth", "bandwidth"),
        Col("link", "Link"),
        Col("link_why", "Source of the link", detail=True, hover_of="link"),
        Col("link_pct", "Bus bandwidth", "pct", "% of the link"),
        Col("late_rank", "Late rank", "int"),
        Col("late_pct", "Late", "pct", "% of all lateness"),
        Col("group_id", "Group", detail=True),
        _JOB,
    ),
    order="job, exposed_ns DESC, group_id",
)

RANK_GROUPS = JobTable(
    "rank_groups",
    "Kinds of the groups",
    (
        Col("kind", "Kind"),
        Col("ranks", "Ranks"),
        Col("size", "Size", "int"),
        Col("captured", "Captured", "int"),
        Col("why", "Evidence, or what is missing"),
        Col("operations", "Operations"),
        Col("per_step", "Kernels per step", "number"),
        Col("step_bytes", "Bytes per step", "bytes"),
        Col("group_id", "Group", detail=True),
        _JOB,
    ),
    order="job, kind, members, group_id",
    folded=True,
)

PIPELINE_SCHEDULES = JobTable(
    "pipeline_schedules",
    "Pipelines",
    (
        Col("ranks", "Ranks"),
        Col("stages", "Stages", "int"),
        Col("microbatches", "Microbatches", "int"),
        Col("chunks", "Chunks", "int", detail=True),
        Col("schedule", "Schedule"),
        Col("bubble_pct", "Bubble", "pct", "%"),
        Col("ideal_pct", "Ideal bubble", "pct", "%"),
        Col("slowest_rank", "Slowest rank", "int"),
        Col("imbalance", "Work of the slowest stage / mean", "number"),
        Col("group_id", "Group", detail=True),
        _JOB,
    ),
    order="job, group_id",
)

PIPELINE_STAGES = GpuTable(
    "pipeline_stages",
    "Bubbles of the pipeline stages per step",
    (
        *GPU,
        Col("stage", "Stage", "int"),
        Col("rank", "Rank", "int"),
        Col("window_ns", "Microbatches", "ns"),
        Col("work_ns", "Work", "ns"),
        Col("receive_ns", "In messages without work", "ns"),
        Col("idle_ns", "Idle", "ns"),
        Col("transfer_ns", "Transfer of received messages", "ns", detail=True),
        Col("bubble_pct", "Bubble", "pct", "%"),
        Col("step_pct", "Bubble", "pct", "% of the step"),
        Col("ends_with", "End of the window", detail=True),
    ),
    order="job, group_id, stage",
)

EXPERT_LOADS = GpuTable(
    "expert_loads",
    "Tokens of the experts",
    (
        *GPU,
        Col("rank", "Rank", "int"),
        Col("calls", "All-to-alls", "int"),
        Col("tokens", "Tokens per call", "number"),
        Col("bytes", "Bytes per call", "bytes"),
        Col("load", "Load / mean", "number"),
        Col("imbalance", "Largest load", "number"),
        Col("call_imbalance", "Largest load in a call", "number"),
    ),
    order="job, group_id, rank",
)

SLOW_RANKS = GpuTable(
    "slow_ranks",
    "Ranks that delay the others",
    (
        *GPU,
        Col("rank", "Rank", "int"),
        Col("late_steps", "Late steps", "int"),
        Col("steps", "Steps", "int"),
        Col("late_ns", "Lateness", "ns"),
        Col("steps_pct", "Lateness", "pct", "% of the steps"),
        Col("longest_ns", "Largest in a step", "ns"),
        Col("pattern", "Development"),
    ),
    order="late_ns DESC, rank",
    where="late_steps > 0",
)

RANK_LATENESS = GpuTable(
    "rank_lateness",
    f"Lateness by step of the rank that delays the others most (first {_LATE_STEPS} steps)",
    (
        *GPU,
        Col("rank", "Rank", "int"),
        Col("step", "Step", "int"),
        Col("collectives", "Collectives", "int"),
        Col("behind_ns", "Median rank waits longer", "ns"),
        Col("waiting_ns", "Own waiting time", "ns"),
        Col("late_ns", "Lateness", "ns"),
    ),
    order="job, step",
    where=(
        f"step <= {_LATE_STEPS} AND (job, rank) IN "
        "(SELECT (job, arg_max(rank, (late_ns, -rank))) FROM slow_ranks "
        "WHERE late_ns > 0 GROUP BY job)"
    ),
    folded=True,
)

RANK_PAIRS = JobTable(
    "rank_pairs",
    "Messages between ranks",
    (
        Col("source", "From", "int"),
        Col("target", "To", "int"),
        Col("count", "Messages", "int"),
        Col("bytes", "Bytes", "bytes"),
        Col("transfer_ns", "Both sides present", "ns"),
        Col("receiver_ns", "Receiver waits", "ns"),
        Col("sender_ns", "Sender waits", "ns"),
        Col("bytes_per_s", "Bandwidth", "bandwidth"),
        Col("communicator", "Communicator", detail=True),
        _JOB,
    ),
    order="job, source, target, communicator",
    folded=True,
)

SECTION = SectionSpec(
    "groups",
    "Groups of ranks",
    Missing(
        "no communication on the timeline",
        nsys="collect all ranks with nsys profile --trace=cuda,nvtx",
        torch="trace all ranks with torch.profiler",
    ),
    (
        RANK_MESH,
        GROUP_TRAFFIC,
        PIPELINE_SCHEDULES,
        PIPELINE_STAGES,
        EXPERT_LOADS,
        SLOW_RANKS,
        RANK_GROUPS,
        RANK_LATENESS,
        RANK_PAIRS,
    ),
)
