"""What perfpipe reports about a real server, compared with what the server and its client know.

    python benchmarks/bench_serving.py --rates 2,6,16 --for 14s
    python benchmarks/bench_serving.py --rates 16 --fault tokenizer

The server is `transformers serve` with continuous batching, on a Llama with random weights, which
is made here.  It logs its batches (serving_engine.py).  The client is the openai package
(serving_client.py).  Both must be installed: transformers with [serving], and openai.  Prints

    latencies   perfpipe's percentiles of each load, and the client's own
    classes     perfpipe's classes of iterations, in the rows, against the batches of the log
    findings    the first findings of each timeline

The faults are a tokenizer that encodes a long text between batches (tokenizer), a log that waits
for the disk (logging), and a limit of two requests in a batch (limit).
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from perfpipe import open_store
from perfpipe.store import Store

HERE = Path(__file__).parent
FAULTS = ("none", "tokenizer", "logging", "limit")
CLASSES = ("prefill", "decode", "mixed", "unknown")

#: Layers, width and heads of the model; a Llama with so many on a GPU has 1.0e9 parameters.
LAYERS, WIDTH, HEADS = 16, 2048, 16

#: Size of the cache, which would else take most of the memory, and the tokens of a batch.
CACHE = ("--cb-num-blocks", "512", "--cb-max-batch-tokens", "2048")

#: Findings to print of each timeline.
FINDINGS = 4


def make_model(folder: Path, *, small: bool) -> dict[str, Any]:
    """Write a Llama with random weights and a tokenizer; returns what it moves and computes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    texts = [path.read_text(errors="replace") for path in Path(json.__file__).parent.glob("*.py")]
    own.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=4096, special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    layers, width, heads = (2, 128, 4) if small else (LAYERS, WIDTH, HEADS)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=width, intermediate_size=4 * width,
            num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=heads // 4, bos_token_id=0, eos_token_id=1, pad_token_id=1,
        )
    ).to(torch.bfloat16)  # fmt: skip
    # All answers have the same length.
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = sum(one.numel() for one in model.parameters())
    keys = layers * (heads // 4) * (width // heads)
    return {
        "weights_gb": 2e-9 * weights,
        "flops_per_token": 2.0 * weights,
        "kv_bytes_per_token": 2 * 2 * keys,
        "dtype": "bf16",
    }


def workload(
    folder: Path, rates: Sequence[float], seconds: str, fault: str, model: Mapping[str, Any]
) -> Path:
    """Write the workload file of a server with its loads."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    at = f"http://127.0.0.1:{port}"
    engine, client = (
        [sys.executable, str(HERE / f"serving_{one}.py")] for one in ("engine", "client")
    )
    served = {
        "ready": f"{at}/health",
        "load": [
            *client, f"{at}/v1", str(folder / "model"), "{rate}", "{duration}",
            str(folder / "client.jsonl"),
        ],
        "url": f"{at}/v1/completions",
        "body": {"model": str(folder / "model"), "prompt": "{prompt:100}", "max_tokens": 8},
        "rate": [*rates],
        "for": seconds,
        "model": {**model},
    }  # fmt: skip
    words = [
        *engine, str(folder / "batches.jsonl"), fault,
        "serve", str(folder / "model"), "--port", port, "--continuous-batching", *CACHE,
    ]  # fmt: skip
    path = folder / "transformers.yaml"
    content = {"version": 1, "name": f"transformers-{fault}", "command": words, "serve": served}
    path.write_text(yaml.safe_dump(content))
    return path


def class_of(tokens: Sequence[int]) -> str:
    """Return the class of a batch by the number of tokens that each of its requests has in it.

    >>> class_of([1, 1]), class_of([256]), class_of([1, 256, 1])
    ('decode', 'prefill', 'mixed')
    """
    long = sum(one > 1 for one in tokens)
    return "mixed" if 0 < long < len(tokens) else "prefill" if long else "decode"


def matched(
    batches: Sequence[tuple[int, str]], iterations: Iterable[tuple[int, str]]
) -> Counter[tuple[str, str]]:
    """Count pairs of perfpipe's class and the class of the batch, which was launched last before.

    Batches and iterations are times, ns on one clock, and classes; batches are in order.  A batch
    without an iteration counts as `none` of perfpipe's, and so does an iteration without a batch.

    >>> batches = [(10, "prefill"), (20, "decode"), (30, "decode")]
    >>> found = matched(batches, [(5, "decode"), (11, "prefill"), (33, "mixed")])
    >>> sorted(found)
    [('decode', 'none'), ('mixed', 'decode'), ('none', 'decode'), ('prefill', 'prefill')]
    """
    starts = [at for at, _ in batches]
    found: Counter[tuple[str, str]] = Counter()
    seen: set[int] = set()
    for at, kind in iterations:
        number = bisect_right(starts, at) - 1
        known = number >= 0 and number not in seen
        found[kind, batches[number][1] if known else "none"] += 1
        seen.add(number)
    found.update(("none", kind) for number, (_, kind) in enumerate(batches) if number not in seen)
    return found


def latencies(store: Store, folder: Path) -> list[str]:
    """Return the table of perfpipe's and the client's percentiles, ms, without a profiler."""
    lines = ["| rate | requests | latency | perfpipe | client |", "| --- | --- | --- | --- | --- |"]
    # The client appends its loads in order: those without a profiler come first.
    own: dict[float, dict[str, float]] = {}
    for load in map(json.loads, (folder / "client.jsonl").read_text().splitlines()):
        own.setdefault(load["rate"], load)
    with open_store(store.root) as session:
        rows = session.execute(
            "SELECT rate, metric, requests, p50_ms, p95_ms FROM serving_latencies "
            "WHERE phase = 'plain' AND metric IN ('ttft', 'e2e') ORDER BY ALL"
        ).fetchall()
    for rate, metric, count, *values in rows:
        for share, ms in zip((50, 95), values, strict=True):
            other = own[rate][f"{metric}_p{share}_ms"]
            said = "-" if ms is None else f"{ms:.1f}"
            lines.append(f"| {rate:g} | {count} | {metric} p{share} | {said} | {other:.1f} |")
    return lines


def classes(store: Store, folder: Path) -> list[str]:
    """Return the tables of classes, one of each load."""
    log = [json.loads(line) for line in (folder / "batches.jsonl").read_text().splitlines()]
    batches = sorted((one["began_ns"], class_of(one["tokens"])) for one in log)
    lines: list[str] = []
    with open_store(store.root) as session:
        loads: list[tuple[Any, ...]] = session.execute(
            "SELECT s.report_id, s.rate, any_value(q.sent_ns - s.sent_ns) FROM request_spans AS s "
            "JOIN requests AS q ON q.report_id = s.requests_report_id "
            "AND q.request_id = s.request_id GROUP BY ALL ORDER BY s.rate"
        ).fetchall()
        for report, rate, origin in loads:
            rows = session.execute(
                "SELECT start_ns, class FROM serving_iterations WHERE report_id = ? ORDER BY 1",
                [report],
            ).fetchall()
            if not rows:
                lines += ["", f"At {rate:g}/s: no iterations"]
                continue
            first, last = (at + origin for at in (rows[0][0], rows[-1][0]))
            begun = [one for one in batches if one[0] <= first][-1:]
            within = [*begun, *(one for one in batches if first < one[0] <= last)]
            found = matched(within, [(at + origin, kind) for at, kind in rows])
            right = sum(count for (one, other), count in found.items() if one == other)
            lines += ["", f"At {rate:g}/s, {right} of {found.total()} are right:", ""]
            kinds = (*CLASSES[:3], "none")
            lines += [f"| perfpipe | {' | '.join(kinds)} |", "| --- " * 5 + "|"]
            lines += [
                f"| {one} | {' | '.join(str(found[one, other]) for other in kinds)} |"
                for one in (*CLASSES, "none")
                if any(found[one, other] for other in kinds)
            ]
    return lines


def findings(store: Store) -> list[str]:
    """Return the first findings of each timeline."""
    with open_store(store.root) as session:
        rows = session.execute(
            "SELECT label, rank, claim, bound, technique FROM findings WHERE subject = 'timeline' "
            f"QUALIFY row_number() OVER (PARTITION BY label ORDER BY rank) <= {FINDINGS} "
            "ORDER BY label, rank"
        ).fetchall()
    return [
        f"- {label}: {claim}, {bound}: {technique}" for label, _, claim, bound, technique in rows
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="2,6,16", help="requests per second")
    parser.add_argument("--for", dest="seconds", default="14s", help="length of each load")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--collector", default="nsys", help="of perfpipe run")
    parser.add_argument("--small", action="store_true", help="a model for a CPU")
    parser.add_argument("--folder", type=Path, required=True, help="new folder for all files")
    options = parser.parse_args(words)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True)
    model = make_model(folder / "model", small=options.small)
    rates = [float(one) for one in options.rates.split(",")]
    path = workload(folder, rates, options.seconds, options.fault, model)
    store = Store(folder / "store")
    code = subprocess.run(
        [sys.executable, "-m", "perfpipe", "run", path, "--collector", options.collector,
         "--store", store.root, "--html", folder / "report.html", "--md", folder / "report.md"],
    ).returncode  # fmt: skip
    if code:
        return code
    print("\n".join([*latencies(store, folder), *classes(store, folder), "", *findings(store)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
