"""Copies pinned memory to the GPU in a thread, on a stream of its own, for a share of the time.

A copy takes the link between the host and the GPU for a known time: the shortest that a copy took.
`copies` counts them.  No copy runs while the program captures a CUDA graph.
"""

import atexit
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    load: "Any" = None  # given to every helper by imports.py


#: Size of a copy, bytes: so long that launching it takes little of the host's time.
SIZE = 16 << 20

#: Copies that are made first, to know how long one takes.
FIRST = 5


def install(own: "Any") -> None:
    """Copy from the first call of a module on."""
    share = float(own.options.get("share", 0))
    shortest_ms = [0.0]
    events = load("handicaps/_delays.py")["Events"](own, lambda: {"us": 1000 * shortest_ms[0]})
    lock, ends = threading.Lock(), threading.Event()
    capturing: "set[int]" = set()
    threads: "list[threading.Thread]" = []

    def copies(torch: "Any", stream: "Any", there: "Any", here: "Any") -> None:
        first, last = (torch.cuda.Event(enable_timing=True, blocking=True) for _ in range(2))
        times, busy_ms, began = [], 0.0, 0.0
        while not ends.is_set():
            with lock:
                wait = bool(capturing)
                if not wait:
                    with torch.cuda.stream(stream):
                        first.record(stream)
                        there.copy_(here, non_blocking=True)
                        last.record(stream)
                    last.synchronize()
                    times.append(first.elapsed_time(last))
            if wait:
                ends.wait(0.001)
                continue
            if len(times) <= FIRST:
                shortest_ms[0] = min(times)
                began = time.perf_counter()
                continue
            if not share:
                return
            shortest_ms[0] = min(shortest_ms[0], times.pop())
            events.add()
            busy_ms += shortest_ms[0]
            ends.wait(max(0.0, began + busy_ms / 1e3 / share - time.perf_counter()))

    def run(*args: "Any") -> None:
        try:
            copies(*args)
        except Exception as error:
            own.failed("%s: %s" % (type(error).__name__, error))

    def end() -> None:
        ends.set()
        threads[0].join(1)

    def alone(graph: "Any") -> None:
        """Let no copy run while a graph is captured."""
        capture_begin, capture_end = graph.capture_begin, graph.capture_end

        def begin_alone(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            with lock:
                capturing.add(id(self))
            try:
                return capture_begin(self, *args, **kwargs)
            except BaseException:
                capturing.discard(id(self))
                raise

        def end_alone(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            try:
                return capture_end(self, *args, **kwargs)
            finally:
                capturing.discard(id(self))

        graph.capture_begin, graph.capture_end = begin_alone, end_alone

    def on_model(module: "Any") -> None:
        torch = own.torch
        if threads:
            return
        if not own.gpu:
            own.refused("the program uses no GPU")
            return
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return  # the next module may begin outside of a graph
        device = torch.cuda.current_device()
        here = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            there = torch.empty(SIZE, dtype=torch.uint8, device=device)
        alone(torch.cuda.CUDAGraph)
        own.applied("GPU %d, %d MiB a copy" % (device, SIZE >> 20))
        threads.append(threading.Thread(target=run, args=(torch, stream, there, here), daemon=True))
        threads[0].start()
        atexit.register(end)

    own.on_model(on_model)
