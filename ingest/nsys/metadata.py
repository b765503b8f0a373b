"""Facts about the machine, the capture and the GPUs, and sampled GPU metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.errors import InputError, brief
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.nsys.columns import EXPORT_META
from perfpipe.ingest.nsys.door import Door
from perfpipe.ingest.nsys.export import Export
from perfpipe.ingest.nsys.resolve import ascending, signed
from perfpipe.secrets import hide, hide_words

#: Major versions of the export schema whose tables this reader knows.
_KNOWN_MAJORS = ("1", "2", "3")

#: Environment variables that describe the job layout; any other variable may hold a secret.
ALLOWED_VARIABLES = frozenset(
    "RANK LOCAL_RANK GROUP_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK "
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_SIZE "
    "PMI_RANK PMI_SIZE PMIX_RANK MPI_LOCALRANKID "
    "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_JOB_ID SLURM_ARRAY_TASK_ID "
    "CUDA_VISIBLE_DEVICES CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS CUDA_MODULE_LOADING "
    "NCCL_ALGO NCCL_PROTO NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_IB_DISABLE "
    "OMP_NUM_THREADS PYTORCH_CUDA_ALLOC_CONF".split()
)

SYSTEM_FACTS = frozenset(
    "Hostname NvDriverVersion CudaDriverVersion OsDescription KernelVersion "
    "SoftwareReleaseVersion CpuDescription CpuCores CpuArchitecture HardwarePlatform "
    "LinuxParanoidLevel".split()
)
CAPTURE_FACTS = re.compile(
    r"CAPTURE_EVENT_TYPE|RATE_HZ|RUN_DURATION_MS|START_DELAY_MS|INCLUDE_CHILDREN|TRACE_ALL_TASKS"
    r"|COLLECT_\w+|PROCESS_\d+:(COMMAND|ARGUMENT_\d+|COLLECT_\w+|CUDA_\w+|CUDA_\w+:\w+)"
)
EXPORT_FACTS = frozenset(
    "EXPORT_PRODUCT_NAME EXPORT_PRODUCT_VERSION EXPORT_SCHEMA_VERSION "
    "EXPORT_PLATFORM EXPORT_ARCH EXPORT_PARAM_TIMES_TO_EXPORT".split()
)
VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)

#: Tables of work on GPUs, and how much of a program's error output is kept if they have no rows.
_WORK = tuple(
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
)
_LAST_LINES, _LINE = 20, 500

_ARGUMENT = re.compile(r"(PROCESS_\d+):ARGUMENT_(\d+)")

Fact = tuple[str, str, str | None]


def write_environment(builder: ReportBuilder, export: Export) -> None:
    """Write nsys_environment and fill in the report's facts.

    Raises InputError if the export's schema has a major version that this reader does not know.
    """
    system = _pairs(export, "TARGET_INFO_SYSTEM_ENV")
    capture = hide_arguments(_pairs(export, "META_DATA_CAPTURE"))
    exported = [pair for table in EXPORT_META for pair in _pairs(export, table)]
    facts: set[Fact] = {("system", n, v) for n, v in system if n in SYSTEM_FACTS}
    facts |= {("capture", n, v) for n, v in capture if CAPTURE_FACTS.fullmatch(n)}
    facts |= {("export", n, v) for n, v in exported if n in EXPORT_FACTS}
    facts |= {f for n, v in [*capture, *system] for f in _allowed_variables(n, v)}
    facts |= set(_errors_of(export))
    rows = sorted(facts, key=lambda fact: (fact[0], fact[1], fact[2] or ""))
    columns = dict(zip(("source", "name", "value"), zip(*rows, strict=True), strict=False))
    builder.write("nsys_environment", {k: list(v) for k, v in columns.items()}, len(rows))

    known = dict(exported)
    schema = known.get("EXPORT_SCHEMA_VERSION")
    if schema is not None and schema.partition(".")[0] not in _KNOWN_MAJORS:
        raise InputError(
            f"{builder.source.path}: nsys export schema {brief(schema)} is not supported; "
            f"this perfpipe reads major versions {', '.join(_KNOWN_MAJORS)}"
        )
    builder.facts.tool_version = known.get("EXPORT_PRODUCT_VERSION")
    builder.facts.export_schema = schema
    builder.facts.host = dict(system).get("Hostname")
    builder.facts.command = _command(capture)
    session = export.read("TARGET_INFO_SESSION_START_TIME", ["utcTime", "utcEpochNs"]).to_pylist()
    if session:
        start = session[0]["utcTime"]
        builder.facts.captured_at = f"{start}Z" if start else None
        builder.facts.started_ns = session[0]["utcEpochNs"]


def _pairs(export: Export, table: str) -> list[tuple[str, str | None]]:
    rows = export.read(table, ["name", "value"])
    return [
        (str(n), None if v is None else str(v))
        for n, v in zip(rows["name"].to_pylist(), rows["value"].to_pylist(), strict=True)
    ]


def _errors_of(export: Export) -> Iterator[Fact]:
    """Yield the end of the error output of programs that did no GPU work: it may say why."""
    if not export.has_rows("ProcessStreams") or any(map(export.has_rows, _WORK)):
        return
    strings = export.read("StringIds", ["id", "value"])
    texts = dict(zip(strings["id"].to_pylist(), strings["value"].to_pylist(), strict=True))
    streams = export.read("ProcessStreams", ["filenameId", "contentId"])
    for file, content in zip(*(column.to_pylist() for column in streams.columns), strict=True):
        if (texts.get(file) or "").endswith("stderr.log"):
            lines = [line for line in (texts.get(content) or "").splitlines() if line.strip()]
            if lines:
                # Part of a secret would not look like one.
                told = hide("\n".join(lines[-_LAST_LINES:])).splitlines()
                yield "output", "stderr", "\n".join(line[:_LINE] for line in told)


def _allowed_variables(name: str, value: str | None) -> list[Fact]:
    """Return the allowed variables of a row: its name, or NAME=VALUE lines in its value."""
    if "ENV" not in name.upper() or not value:
        return []
    return [("variable", name, text) for name, text in allowed_variables(value)]


def hide_arguments(facts: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return facts with the secrets in the arguments of programs hidden.

    An option and its value are separate facts, so they are checked together as a command.
    """
    known = list(facts)
    places: dict[str, list[tuple[int, int]]] = {}
    for at, (name, value) in enumerate(known):
        if value and (found := _ARGUMENT.fullmatch(name)):
            places.setdefault(found[1], []).append((int(found[2]), at))
    for numbered in places.values():
        order = [at for _, at in sorted(numbered)]
        words = hide_words([str(known[at][1]) for at in order])
        for at, word in zip(order, words, strict=True):
            known[at] = known[at][0], word
    return known


def allowed_variables(value: str) -> Iterator[tuple[str, str]]:
    """Yield the allowed variables of NAME=VALUE lines; their values are single words."""
    for line in re.split(r"[\n\0;]", value):
        found = VARIABLE.match(line)
        if found and found[1] in ALLOWED_VARIABLES:
            yield found[1], next(iter(found[2].strip('" ').split()), "")


def _command(capture: list[tuple[str, str | None]]) -> str | None:
    known = dict(capture)
    words = [known.get("PROCESS_0:COMMAND")]
    while (argument := known.get(f"PROCESS_0:ARGUMENT_{len(words) - 1}")) is not None:
        words.append(argument)
    return " ".join(word for word in words if word) or None


#: Columns with the number of a GPU, by preference: exports of 2021 have no column id.
_GPU_NUMBERS = ("id", "deviceId", "gpuId", "cuDevice")

_GPU_COLUMNS = {
    "device": "cuDevice",
    "name": "name",
    "uuid": "uuid",
    "chip": "chipName",
    "bus_location": "busLocation",
    "sm_count": "smCount",
    "clock_hz": "clockRate",
    "memory_bytes": "totalMemory",
    "memory_bandwidth": "memoryBandwidth",
    "l2_bytes": "l2CacheSize",
    "max_warps_per_sm": "maxWarpsPerSm",
    "smem_per_sm": "maxShmemPerSm",
    "registers_per_sm": "maxRegistersPerSm",
}


def write_gpus(builder: ReportBuilder, export: Export) -> dict[int, int | None]:
    """Write nsys_gpus and return GPU number -> CUDA device number.

    If the export does not number the GPUs, their order does.
    """
    table, source = "nsys_gpus", "TARGET_INFO_GPU"
    numbers = [column for column in _GPU_NUMBERS if column in export.columns(source)][:1]
    wanted = [*numbers, *_GPU_COLUMNS.values(), "computeMajor", "computeMinor"]
    rows = export.read(source, list(dict.fromkeys(wanted)), numbers)
    if not rows.num_rows:
        builder.lacks(table, "TARGET_INFO_GPU is not in the export")
    columns = {ours: rows[theirs].to_pylist() for ours, theirs in _GPU_COLUMNS.items()}
    columns["gpu"] = rows[numbers[0]].to_pylist() if numbers else list(range(rows.num_rows))
    columns["name"] = [name or None for name in columns["name"]]
    versions = zip(rows["computeMajor"].to_pylist(), rows["computeMinor"].to_pylist(), strict=True)
    columns["cc"] = [None if major is None else f"{major}.{minor}" for major, minor in versions]
    builder.write(table, columns, rows.num_rows)
    return dict(zip(columns["gpu"], columns["device"], strict=True))


def write_gpu_metrics(builder: ReportBuilder, export: Door, devices: dict[int, int | None]) -> None:
    """Write nsys_gpu_metrics; the names of metric ids differ between reports."""
    table = "nsys_gpu_metrics"
    names = export.read("TARGET_INFO_GPU_METRICS", ["typeId", "metricId", "metricName"])
    by_key: dict[tuple[int, int], str] = {
        (t, m): name
        for t, m, name in zip(*(names[c].to_pylist() for c in names.column_names), strict=True)
    }
    metric_names = sorted(set(by_key.values()))
    columns = ["timestamp", "typeId", "metricId", "value"]
    samples = export.read("GPU_METRICS", columns)
    if not samples.num_rows:
        builder.lacks(table, "GPU_METRICS is empty; sample with --gpu-metrics-devices=all")
        builder.write(table, {}, 0)
        return
    if not ascending(signed(samples["timestamp"].combine_chunks()), None):
        samples = samples.sort_by([(c, "ascending") for c in columns[:3]])
    column = {c: samples[c].combine_chunks() for c in columns}
    types, metrics = signed(column["typeId"]), signed(column["metricId"])
    pairs = pa.StructArray.from_arrays([types, metrics], ["t", "m"])
    index = _index(pairs, by_key, metric_names)
    unnamed = "have a metric that is not in TARGET_INFO_GPU_METRICS"
    export.note("GPU_METRICS", unnamed, index.null_count)
    gpu = pc.bit_wise_and(types, 0xFF)
    numbers = pa.array(list(devices), pa.int64())
    device = pa.array(list(devices.values()), pa.int64()).take(pc.index_in(gpu, value_set=numbers))
    builder.write(
        table,
        {
            "device": device,
            "gpu": gpu,
            "timestamp_ns": column["timestamp"],
            "metric": pa.DictionaryArray.from_arrays(index, pa.array(metric_names)),
            "value": column["value"].cast(pa.float64()),
        },
        samples.num_rows,
    )


def _index(
    pairs: pa.StructArray, by_key: dict[tuple[int, int], str], metric_names: list[str]
) -> pa.Array:
    """Return the index of each sample's metric in `metric_names`."""
    encoded = pc.add(
        pc.multiply(pc.bit_wise_and(pairs.field("t"), 0xFFFF_FFFF_FFFF), 4096), pairs.field("m")
    ).dictionary_encode()
    keys = {(t & 0xFFFF_FFFF_FFFF) * 4096 + m: name for (t, m), name in by_key.items()}
    places = [
        metric_names.index(keys[k]) if k in keys else None for k in encoded.dictionary.to_pylist()
    ]
    return pa.array(places, pa.int32()).take(encoded.indices)
