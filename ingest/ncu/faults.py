"""Messages of ncu about what prevents profiling, and what to do about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from perfpipe.errors import brief

_PRINTED = re.compile(r"==(ERROR|WARNING)== ([^\r\n]*\S)")

#: Parts of messages on causes in lower case, with the explanation and remedy.
_CAUSES = (
    (
        "err_nvgpuctrperm",
        "only administrators may read performance counters; run as root, or set "
        "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
    ),
    (
        "driver is not compatible",
        "the NVIDIA driver is too old for this profiler; update it, or use an older ncu",
    ),
    ("driver is older than", "the NVIDIA driver is too old for this profiler"),
    ("driver version is insufficient", "the NVIDIA driver is too old for this CUDA version"),
    (
        "profiling is not supported on",
        "this GPU cannot be profiled by this version of ncu, or is shared (vGPU, MIG)",
    ),
    (
        "cannot lock gpu clock frequencies",
        "ncu may not set the clocks of this GPU; add --clock-control none",
    ),
    *(
        (
            f"resource {is_was} unavailable",
            "another profiler or DCGM is using the GPU's counters; stop it, or pause DCGM "
            "(dcgmi profiling --pause)",
        )
        for is_was in ("is", "was")
    ),
)

_NOTHING = "no kernels were profiled"
_NO_LAUNCH = "no kernel was launched, or none passed the kernel filter"

#: The messages that perfpipe explains when it runs a profiler.
KNOWN = (*_CAUSES, (_NOTHING, _NO_LAUNCH))

#: The messages on consequences that it explains in a log, the most telling first.
_CONSEQUENCES = (
    ("returned an error code", "the program failed; run it without ncu first"),
    (_NOTHING, f"{_NO_LAUNCH}; 'ncu --target-processes all' includes child processes"),
)

#: Errors that follow from others.
_VAGUE = re.compile(
    "returned an error code|reported by the driver|^failed to pr|while trying to profile", re.I
)


def errors_of(text: str) -> list[str]:
    """Return the errors that ncu printed in a text, without its mark."""
    return [message for kind, message in _PRINTED.findall(text) if kind == "ERROR"]


def failure_of(text: str) -> str | None:
    """Return ncu's message on why it profiled nothing, and the remedy; None without one."""
    errors = errors_of(text)
    causes = [(message, "") for message in errors if not _VAGUE.search(message)]
    others = [(message, "") for message in errors]
    messages = [message for _, message in _PRINTED.findall(text)]
    told = [
        *_explained(_CAUSES, messages),
        *causes,
        *_explained(_CONSEQUENCES, messages),
        *others,
    ]
    return f"ncu printed {brief(told[0][0])!r}{told[0][1]}" if told else None


def _explained(
    known: Iterable[tuple[str, str]], messages: Iterable[str]
) -> Iterator[tuple[str, str]]:
    for sign, advice in known:
        yield from ((said, f": {advice}") for said in messages if sign in said.lower())
