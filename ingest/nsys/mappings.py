"""The mapping from columns of an export to columns of the store."""

from __future__ import annotations

from dataclasses import dataclass

#: How a source column is converted to a column of the store.
INT, TEXT, STRING, API, PID, TID, ENUM, ID = (
    "int",
    "text",
    "string",
    "api",
    "pid",
    "tid",
    "enum",
    "id",
)


@dataclass(frozen=True)
class From:
    """A source column; `enum` names the file's ENUM_* table.  ID: all ones (32 bit) mean none."""

    column: str
    how: str = INT
    enum: str = ""


@dataclass(frozen=True)
class Mapping:
    """A `table` of the store from one table of the export; `order` makes the order total."""

    table: str
    source: str
    columns: dict[str, From]
    order: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    hint: str = ""

    @property
    def timed(self) -> bool:
        """Whether rows are intervals, which get a duration."""
        return "end_ns" in self.columns


_SPAN = {"start_ns": From("start"), "end_ns": From("end")}
_THREAD = {"pid": From("globalTid", PID), "tid": From("globalTid", TID)}
_ON_GPU = {
    "device": From("deviceId"),
    "context": From("contextId"),
    "stream": From("streamId"),
    "pid": From("globalPid", PID),
    "correlation_id": From("correlationId"),
    **_SPAN,
}
_GPU_ORDER = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
_HOST_ORDER = ("start", "end", "globalTid")

_GRID = {
    f"{what}_{axis}": From(f"{what}{axis.upper()}") for what in ("grid", "block") for axis in "xyz"
}

_NAMED = {**_THREAD, **_SPAN, "name": From("nameId", STRING)}
_MPI = {**_THREAD, **_SPAN, "name": From("textId", STRING)}
_MPI_HINT = "trace with --trace=mpi"
_MANAGED = "if the program uses unified memory, trace with"

MAPPINGS: tuple[Mapping, ...] = (
    Mapping(
        "nsys_kernels",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {
            **_ON_GPU,
            **_GRID,
            "name": From("shortName", STRING),
            "demangled": From("demangledName", STRING),
            "mangled": From("mangledName", STRING),
            "registers": From("registersPerThread"),
            "static_smem": From("staticSharedMemory"),
            "dynamic_smem": From("dynamicSharedMemory"),
            "executed_smem": From("sharedMemoryExecuted"),
            "local_mem_per_thread": From("localMemoryPerThread"),
            "graph_node_id": From("graphNodeId"),
            "launch_type": From("launchType", ENUM, "ENUM_CUDA_KERNEL_LAUNCH_TYPE"),
            "green_context": From("greenContextId"),
        },
        (*_GPU_ORDER, "graphNodeId"),
        hint="trace with --trace=cuda",
    ),
    Mapping(
        "nsys_memory_ops",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {
            **_ON_GPU,
            "operation": From("copyKind", ENUM, "ENUM_CUDA_MEMCPY_OPER"),
            "bytes": From("bytes"),
            "src_kind": From("srcKind", ENUM, "ENUM_CUDA_MEM_KIND"),
            "dst_kind": From("dstKind", ENUM, "ENUM_CUDA_MEM_KIND"),
            "src_device": From("srcDeviceId"),
            "dst_device": From("dstDeviceId"),
            "graph_node_id": From("graphNodeId"),
            "migration_cause": From("migrationCause", ENUM, "ENUM_CUDA_UNIF_MEM_MIGRATION"),
            "address": From("virtualAddress"),
        },
        (*_GPU_ORDER, "graphNodeId"),
        hint="trace with --trace=cuda",
    ),
    Mapping(
        "nsys_memory_ops",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        {
            **_ON_GPU,
            "bytes": From("bytes"),
            "dst_kind": From("memKind", ENUM, "ENUM_CUDA_MEM_KIND"),
            "graph_node_id": From("graphNodeId"),
        },
        (*_GPU_ORDER, "graphNodeId"),
        constants=(("operation", "[CUDA memset]"),),
        hint="trace with --trace=cuda",
    ),
    Mapping(
        "nsys_api_calls",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        {
            **_THREAD,
            **_SPAN,
            "name": From("nameId", API),
            "recorded_name": From("nameId", STRING),
            "api": From("eventClass", ENUM, "ENUM_NSYS_EVENT_CLASS"),
            "correlation_id": From("correlationId"),
            "return_value": From("returnValue"),
        },
        (*_HOST_ORDER, "correlationId"),
        hint="trace with --trace=cuda",
    ),
    *(
        Mapping(
            "nsys_api_calls",
            f"{library}_EVENTS",
            {
                **_THREAD,
                **_SPAN,
                "name": From("nameId", API),
                "recorded_name": From("nameId", STRING),
            },
            _HOST_ORDER,
            constants=(("api", library.lower()),),
        )
        for library in ("CUBLAS", "CUDNN")
    ),
    Mapping(
        "nsys_syncs",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        {
            **_ON_GPU,
            "stream": From("streamId", ID),
            "type": From("syncType", ENUM, "ENUM_CUPTI_SYNC_TYPE"),
            "event_id": From("eventId", ID),
            "event_sync_id": From("eventSyncId", ID),
        },
        _GPU_ORDER,
        hint="trace with --trace=cuda",
    ),
    Mapping(
        "nsys_cuda_events",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        {
            "device": From("deviceId"),
            "context": From("contextId"),
            "stream": From("streamId"),
            "pid": From("globalPid", PID),
            "correlation_id": From("correlationId"),
            "event_id": From("eventId"),
            "event_sync_id": From("eventSyncId"),
        },
        hint="trace with --cuda-event-trace=true",
    ),
    Mapping(
        "nsys_graph_launches",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        {**_ON_GPU, "graph_id": From("graphId"), "graph_exec_id": From("graphExecId")},
        _GPU_ORDER,
        hint="either no CUDA graph was launched, or graphs were traced node by node",
    ),
    Mapping(
        "nsys_graph_nodes",
        "CUDA_GRAPH_NODE_EVENTS",
        {
            **_NAMED,
            "graph_node_id": From("graphNodeId"),
            "original_graph_node_id": From("originalGraphNodeId"),
        },
        (*_HOST_ORDER, "graphNodeId"),
        hint="if the program uses CUDA graphs, trace with --cuda-graph-trace=node",
    ),
    Mapping(
        "nsys_osrt",
        "OSRT_API",
        {
            **_NAMED,
            "return_value": From("returnValue"),
            "nesting_level": From("nestingLevel"),
        },
        (*_HOST_ORDER, "nameId"),
        hint="trace with --trace=osrt",
    ),
    Mapping(
        "nsys_overhead",
        "PROFILER_OVERHEAD",
        _NAMED,
        (*_HOST_ORDER, "nameId"),
        hint="no profiler overhead was recorded",
    ),
    Mapping(
        "nsys_memory_usage",
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        {
            "timestamp_ns": From("start"),
            "pid": From("globalPid", PID),
            "device": From("deviceId"),
            "context": From("contextId"),
            "stream": From("streamId"),
            "correlation_id": From("correlationId"),
            "operation": From("memoryOperationType", ENUM, "ENUM_CUDA_DEV_MEM_EVENT_OPER"),
            "kind": From("memKind", ENUM, "ENUM_CUDA_MEM_KIND"),
            "address": From("address"),
            "bytes": From("bytes"),
            "name": From("name", TEXT),
            "pool_address": From("localMemoryPoolAddress"),
            "pool_bytes": From("localMemoryPoolSize"),
            "pool_used_bytes": From("localMemoryPoolUtilizedSize"),
            "imported_pool": From("importedMemoryPoolAddress"),
        },
        ("start", "globalPid", "correlationId", "address", "memoryOperationType"),
        hint="trace with --cuda-memory-usage=true",
    ),
    Mapping(
        "nsys_gpu_page_faults",
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        {
            "device": From("deviceId"),
            "pid": From("globalPid", PID),
            **_SPAN,
            "address": From("address"),
            "faults": From("numberOfPageFaults"),
            "access": From("faultAccessType", ENUM, "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE"),
        },
        ("start", "end", "globalPid", "deviceId", "address", "faultAccessType"),
        hint=f"{_MANAGED} --cuda-um-gpu-page-faults=true",
    ),
    Mapping(
        "nsys_cpu_page_faults",
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        {
            "timestamp_ns": From("start"),
            "pid": From("globalPid", PID),
            "address": From("address"),
            "function": From("CpuInstruction", STRING),
        },
        ("start", "globalPid", "address"),
        hint=f"{_MANAGED} --cuda-um-cpu-page-faults=true",
    ),
    Mapping(
        "nsys_cuda_devices",
        "TARGET_INFO_CUDA_DEVICE",
        {"pid": From("pid"), "device": From("cudaId"), "gpu": From("gpuId")},
        ("pid", "cudaId", "gpuId"),
    ),
    Mapping(
        "nsys_processes",
        "PROCESSES",
        {"pid": From("globalPid", PID), "name": From("name", TEXT)},
        ("globalPid",),
    ),
    Mapping(
        "nsys_threads",
        "ThreadNames",
        {**_THREAD, "name": From("nameId", STRING), "priority": From("priority")},
        ("globalTid", "nameId"),
    ),
    Mapping(
        "nsys_diagnostics",
        "DIAGNOSTIC_EVENT",
        {
            "timestamp_ns": From("timestamp"),
            "severity": From("severity", ENUM, "ENUM_DIAGNOSTIC_SEVERITY_LEVEL"),
            "source": From("source", ENUM, "ENUM_DIAGNOSTIC_SOURCE_TYPE"),
            "pid": From("globalPid", PID),
            "text": From("text", TEXT),
        },
        ("timestamp", "text"),
    ),
    Mapping(
        "mpi_ranks",
        "MPI_RANKS",
        {**_THREAD, "rank": From("rank")},
        ("globalTid",),
        hint=_MPI_HINT,
    ),
    Mapping(
        "mpi_communicators",
        "MPI_COMMUNICATORS",
        {
            "rank": From("rank"),
            "timestamp_ns": From("timestamp"),
            "handle": From("commHandle"),
            "parent_handle": From("parentHandle"),
            "local_rank": From("localRank"),
            "size": From("size"),
            "members": From("members", TEXT),
        },
        ("rank", "timestamp", "commHandle"),
        hint=_MPI_HINT,
    ),
    Mapping(
        "mpi_p2p",
        "MPI_P2P_EVENTS",
        {
            **_MPI,
            "comm": From("commHandle"),
            "tag": From("tag"),
            "remote_rank": From("remoteRank"),
            "bytes": From("size"),
        },
        _HOST_ORDER,
        hint=_MPI_HINT,
    ),
    Mapping(
        "mpi_collectives",
        "MPI_COLLECTIVES_EVENTS",
        {
            **_MPI,
            "comm": From("commHandle"),
            "root_rank": From("rootRank"),
            "send_bytes": From("size"),
            "recv_bytes": From("recvSize"),
        },
        _HOST_ORDER,
        hint=_MPI_HINT,
    ),
    Mapping("mpi_start_wait", "MPI_START_WAIT_EVENTS", _MPI, _HOST_ORDER, hint=_MPI_HINT),
    Mapping("mpi_other", "MPI_OTHER_EVENTS", _MPI, _HOST_ORDER, hint=_MPI_HINT),
)
