"""Latency of a server against the rate of requests."""

from __future__ import annotations

from perfpipe.analysis.report.declare import (
    LABEL,
    Col,
    GpuTable,
    KindTable,
    Missing,
    ReportTable,
    SectionSpec,
)

#: Which load a row is about.
_LOAD = (
    LABEL,
    Col("phase", "Profiler", sql="nullif(phase, 'plain')"),
    Col("rate", "Rate", "number", "requests/s"),
)

_BY_METRIC = "list_position(['ttft', 'tpot', 'itl', 'e2e', 'client_wait'], metric)"


_OF_CAPTURE = (LABEL, Col("rate", "Rate", "number", "requests/s"))


class _LoadTable(KindTable):
    """A table of loads on a server."""

    kind = "serving"


RATES = _LoadTable(
    "serving_rates",
    "Latency against rate",
    (
        *_LOAD,
        Col("requests", "Requests", "int"),
        Col("error_pct", "Failed", "pct", "%"),
        Col("requests_per_s", "Answered", "number", "requests/s"),
        Col("output_tokens_per_s", "Tokens", "number", "tokens/s"),
        Col("ttft_p50_ms", "TTFT p50", "number", "ms"),
        Col("ttft_p95_ms", "TTFT p95", "number", "ms"),
        Col("ttft_p99_ms", "TTFT p99", "number", "ms", detail=True),
        Col("tpot_p50_ms", "TPOT p50", "number", "ms"),
        Col("tpot_p95_ms", "TPOT p95", "number", "ms"),
        Col("e2e_p50_ms", "End to end p50", "number", "ms"),
        Col("e2e_p95_ms", "End to end p95", "number", "ms"),
        Col("e2e_p99_ms", "End to end p99", "number", "ms", detail=True),
        Col("good_pct", "Good", "pct", "%"),
        Col("good_per_s", "Goodput", "number", "requests/s"),
        Col(
            "saturated", "Saturated", sql="if(saturated, 'yes', if(saturated IS NULL, NULL, 'no'))"
        ),
        Col("slo", "Objectives", detail=True),
        Col("arrivals", "Arrivals", detail=True),
        Col("client_wait_max_ms", "Longest wait in the client", "number", "ms", detail=True),
        Col("latency_growth", "Growth of latency", "number", "s/s", detail=True),
        Col("backlog_pct", "Growth of the backlog", "pct", "% of arrivals", detail=True),
        Col("errors", "Reason of failures", detail=True),
        Col("ended_by", "Ended early by", detail=True),
    ),
    order="phase != 'plain', phase, rate, load_id",
    figure="latencies",
    headline=1,
    key="TTFT p95 {ttft_p95_ms} ms, end to end p95 {e2e_p95_ms} ms",
)

LATENCIES = _LoadTable(
    "serving_latencies",
    "Latencies, and how many values they rest on",
    (
        *_LOAD,
        Col("metric", "Latency"),
        Col("requests", "Requests", "int"),
        Col("samples", "Values", "int"),
        Col("mean_ms", "Mean", "number", "ms"),
        Col("p50_ms", "p50", "number", "ms"),
        Col("p95_ms", "p95", "number", "ms"),
        Col("p99_ms", "p99", "number", "ms"),
        Col("max_ms", "Max", "number", "ms"),
        Col("missing", "Not known"),
    ),
    order=f"phase != 'plain', phase, rate, load_id, {_BY_METRIC}",
    folded=True,
)

OVERHEAD = _LoadTable(
    "serving_overhead",
    "Profiler overhead of the server",
    (
        LABEL,
        Col("profiler", "Profiler"),
        Col("rate", "Rate", "number", "requests/s"),
        Col("metric", "Latency"),
        Col("plain_ms", "Without a profiler", "number", "ms"),
        Col("traced_ms", "In the captured window", "number", "ms"),
        Col("overhead_pct", "Overhead", "change", "%"),
        Col("plain_samples", "Values without a profiler", "int", detail=True),
        Col("traced_samples", "Values in the window", "int", detail=True),
        Col("missing", "Not known", detail=True),
    ),
    order=f"profiler, rate, {_BY_METRIC}",
)

CLASSES = GpuTable(
    "serving_classes",
    "Iterations of the engine by class",
    (
        *_OF_CAPTURE,
        Col("device", "GPU", "int", detail=True),
        Col("class", "Class"),
        Col("iterations", "Iterations", "int"),
        Col("share_pct", "Share", "pct", "% of the window"),
        Col("p50_ms", "p50", "number", "ms"),
        Col("p95_ms", "p95", "number", "ms"),
        Col("busy_pct", "GPU busy", "pct", "%"),
        Col("kernels_pct", "Kernels", "pct", "%", detail=True),
        Col("copies_pct", "Copies", "pct", "%", detail=True),
        Col("gaps_pct", "Gaps", "pct", "%"),
        Col("host_pct", "Host", "pct", "%"),
        Col("batch_p50", "Batch p50", "number", "requests"),
        Col("batch_max", "Batch max", "int", "requests"),
        Col("tokens_p50", "Tokens p50", "number", "per iteration"),
        Col("roof_pct", "Achieved", "pct", "% of the roof"),
        Col("roof", "Roof"),
        Col("missing", "Roof not known", detail=True),
        Col("evidence", "Class from", detail=True),
    ),
    order="rate, load_id, list_position("
    "['prefill', 'decode', 'mixed', 'unknown', 'between', 'empty'], class)",
    figure="iterations",
)

AROUND = ReportTable(
    "ttft_around",
    "Where the time to first token goes",
    (
        *_OF_CAPTURE,
        Col("around", "Requests around"),
        Col("requests", "Requests", "int"),
        Col("of", "In the window", "int"),
        Col("ttft_ms", "TTFT", "number", "ms"),
        Col("client_ms", "Client", "number", "ms"),
        Col("decode_ms", "Behind decode", "number", "ms"),
        Col("others_ms", "Behind other prefill", "number", "ms"),
        Col("unknown_ms", "Behind other iterations", "number", "ms", detail=True),
        Col("prefill_ms", "Own prefill", "number", "ms"),
        Col("host_ms", "Host", "number", "ms"),
        Col("roof_pct", "Prefill", "pct", "% of the roof"),
        Col("roof", "Roof", detail=True),
    ),
    order="position NULLS LAST, label, report_id, rate, load_id, "
    "list_position(['p50', 'p95', 'slowest'], around)",
)

SLOWEST = ReportTable(
    "slowest_request",
    "The slowest request until its first token",
    (
        *_OF_CAPTURE,
        Col("request_id", "Request", "int"),
        Col("lane", "Who"),
        Col("part", "What"),
        Col("iterations", "Iterations", "int"),
        Col("from_ms", "From", "number", "ms"),
        Col("time_ms", "Time", "number", "ms"),
    ),
    order="position NULLS LAST, label, report_id, rate, load_id, lane DESC, from_ms, part",
    figure="slowest_request",
    folded=True,
)

SECTION = SectionSpec(
    "serving",
    "Server under load",
    Missing(
        "no load was put on a server",
        perfpipe="run it with 'perfpipe run --serve SERVER --ready URL --rate RATES'",
    ),
    (RATES, CLASSES, AROUND, SLOWEST, LATENCIES, OVERHEAD),
)
