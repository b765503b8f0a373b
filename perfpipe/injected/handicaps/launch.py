"""Delays each launch of a kernel or graph, by callbacks of CUPTI.

Launches of libraries and of Triton are seen too.  The cost of the callbacks is part of a launch
with a delay of 0, so that is the launch to compare with.  `library` is launch.c, compiled.  A
process has one subscriber of CUPTI: a profiler in the program would take its place.
"""

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    load: "Any" = None  # given to every helper by imports.py


#: Functions that launch, by domain of CUPTI (driver and runtime): beginnings of their names.
FUNCTIONS = {
    1: ("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchGrid", "cuGraphLaunch"),
    2: ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaGraphLaunch"),
}

#: The largest number of a function that is looked for.
MOST = 2048

#: What CUPTI returns if there is another subscriber: old and new versions.
OTHER_SUBSCRIBER = (12, 39)


def _cupti() -> "Any":
    """Return the CUPTI that PyTorch has loaded; None without one.

    Another copy of the library, such as that of Triton, would be another CUPTI.
    """
    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = {line.split(None, 5)[5].strip() for line in file if "/libcupti.so" in line}
    path = min(paths, key=lambda path: ("triton" in path, path), default=None)
    return ctypes.CDLL(path) if path else None


def _functions(cupti: "Any") -> "list[tuple[int, int]]":
    """Return the domains and numbers of the functions that launch, which versions add to."""
    found = []
    name = ctypes.c_char_p()
    for domain, beginnings in FUNCTIONS.items():
        for number in range(1, MOST):
            if cupti.cuptiGetCallbackName(domain, number, ctypes.byref(name)) != 0:
                continue
            if (name.value or b"").decode().lstrip("_").startswith(beginnings):
                found.append((domain, number))
    return found


def _error(cupti: "Any", code: int) -> str:
    text = ctypes.c_char_p()
    cupti.cuptiGetResultString(code, ctypes.byref(text))
    return (text.value or b"CUPTI error %d" % code).decode()


def _subscribe(cupti: "Any", library: "Any") -> str:
    """Let CUPTI call the library; return what went wrong, or an empty text."""
    number, pointer = ctypes.c_uint32, ctypes.c_void_p
    cupti.cuptiGetCallbackName.argtypes = (ctypes.c_int, number, pointer)
    cupti.cuptiGetResultString.argtypes = (ctypes.c_int, pointer)
    cupti.cuptiSubscribe.argtypes = (pointer, pointer, pointer)
    cupti.cuptiEnableCallback.argtypes = (number, pointer, ctypes.c_int, number)
    cupti.cuptiUnsubscribe.argtypes = (pointer,)
    subscriber = pointer()
    callback = ctypes.cast(library.launched, pointer)
    code = cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None)
    if code in OTHER_SUBSCRIBER:
        return "CUPTI already has a subscriber, such as a profiler"
    if code:
        return "CUPTI refuses callbacks (%s)" % _error(cupti, code)
    codes = [cupti.cuptiEnableCallback(1, subscriber, *one) for one in _functions(cupti)]
    if 0 in codes:
        return ""
    cupti.cuptiUnsubscribe(subscriber)
    why = _error(cupti, codes[0]) if codes else "it names no function that launches"
    return "CUPTI refuses callbacks (%s)" % why


def install(own: "Any") -> None:
    """Delay launches from the first call of a module on."""
    events = load("handicaps/_delays.py")["Events"](own)
    state: "dict[str, Any]" = {}

    def start() -> None:
        if not own.gpu:
            own.refused("the program uses no GPU")
            return
        cupti = _cupti()
        if cupti is None:
            own.refused("PyTorch has loaded no CUPTI")
            return
        library = ctypes.CDLL(own.options["library"])
        ctypes.c_int64.in_dll(library, "delay_ns").value = int(1000 * own.options.get("us", 0))
        why = _subscribe(cupti, library)
        if why:
            own.refused(why)
            return
        own.applied("launches of kernels and graphs")
        state["count"] = ctypes.c_int64.in_dll(library, "launches")

    def sample() -> None:
        if not state:
            state["count"] = None
            start()
        if state["count"] is not None:
            events.reached(state["count"].value)

    def counted_call(call: "Any", module: "Any", args: "Any", kwargs: "Any") -> "Any":
        sample()
        return call(module, *args, **kwargs)

    own.around_model(counted_call)
    own.on_step(lambda number: sample())
