"""Stands for an inference server: streams tokens over HTTP, with planted faults.

standserver.py --port 8000 [--style chat|plain|json] [--tokens 5] [--token-ms 2] [--slow-start 1]
    [--never-ready] [--die-at 20] [--block-ms 50] [--refuse-every 3] [--rate 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--style", default="chat")
parser.add_argument("--tokens", type=int, default=5)
parser.add_argument("--token-ms", type=float, default=2)
parser.add_argument("--slow-start", type=float, default=0)
parser.add_argument("--never-ready", action="store_true")
parser.add_argument("--die-at", type=int, default=0)
parser.add_argument("--die-under", help="die only under this profiler")
parser.add_argument("--block-ms", type=float, default=0)
parser.add_argument("--refuse-every", type=int, default=0)
parser.add_argument("--rate", type=float, default=0, help="requests/s that one worker serves")
parser.add_argument("--marks", help="file to which the server writes what it does")
asked = parser.parse_args()
served = 0
worker = asyncio.Lock()


def mark(text: str) -> None:
    if asked.marks:
        with Path(asked.marks).open("a") as file:
            file.write(f"{text} {time.time_ns()}\n")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await respond(reader, writer)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global served
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    method, path, _ = head.split("\r\n")[0].split()
    lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
    body = await reader.readexactly(int(lengths[0].split(":")[1])) if lengths else b""
    if path == "/health":
        status = "503 Busy" if asked.never_ready else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        return
    if path in ("/start_profile", "/stop_profile"):
        mark(path)
        if path == "/stop_profile":
            folder = Path(os.environ["VLLM_TORCH_PROFILER_DIR"])
            trace = Path(os.environ["STAND_TRACE"]).read_bytes()
            (folder / f"{time.time_ns()}.pt.trace.json.gz").write_bytes(trace)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        return
    served += 1
    number = served
    here = asked.die_under in (None, os.environ.get("PERFPIPE_COLLECTOR"))
    if here and asked.die_at and number == asked.die_at:
        print("RuntimeError: CUDA error: an illegal memory access was encountered", file=sys.stderr)
        sys.stderr.flush()
        os._exit(3)
    if method != "POST" or path != "/v1/chat/completions":
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nno route\n")
        return
    if asked.refuse_every and number % asked.refuse_every == 0:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nbusy\n")
        return
    if asked.rate:
        async with worker:
            await asyncio.sleep(1 / asked.rate)
    time.sleep(asked.block_ms / 1e3)  # in the loop: all other requests wait
    await stream(writer, json.loads(body))


async def stream(writer: asyncio.StreamWriter, request: dict[str, object]) -> None:
    usage = {"prompt_tokens": len(str(request.get("prompt", "")).split()),
             "completion_tokens": asked.tokens}  # fmt: skip
    if asked.style == "json":
        await asyncio.sleep(asked.token_ms * asked.tokens / 1e3)
        content = json.dumps({"choices": [{"text": "done"}], "usage": usage}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(content) + content)  # fmt: skip
        return
    kind = "text/event-stream" if asked.style == "chat" else "text/plain"
    writer.write(
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    if asked.style == "chat":
        chunk(writer, event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
    for number in range(asked.tokens):
        await asyncio.sleep(asked.token_ms / 1e3)
        text = f"word{number} "
        said = (
            event({"choices": [{"delta": {"content": text}}]})
            if asked.style == "chat"
            else text.encode()
        )
        chunk(writer, said)
        await writer.drain()
    if asked.style == "chat":
        chunk(writer, event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def event(content: object) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def chunk(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(content), content))


async def main() -> None:
    print("loading the model", flush=True)
    await asyncio.sleep(asked.slow_start)
    server = await asyncio.start_server(answer, "127.0.0.1", asked.port)
    print(f"listening on port {asked.port}", flush=True)
    mark("ready")
    async with server:
        await server.serve_forever()


asyncio.run(main())
