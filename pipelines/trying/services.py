"""Variables and options of repeated launches: they send nothing, and each has its own port."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

#: Values with which a logging service already writes to the disk at most.
_QUIET = {
    "WANDB_MODE": ("offline", "disabled", "dryrun"),
    "COMET_MODE": ("offline", "disabled"),
    "NEPTUNE_MODE": ("offline", "debug", "read-only"),
}

#: Variables that keep logging services from sending anything.
_LOGGING = {
    "WANDB_MODE": "offline",
    "COMET_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}

#: Variables that keep libraries from asking for newer models and data; the caches must be filled.
_DOWNLOADS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}

#: Options with which a launcher of ranks meets them at a place that the user chose.
_MEETING = re.compile(
    r"--?(master[-_](port|addr)|main_process_(port|ip)|rdzv[-_]\w+|standalone|machine_rank"
    r"|node[-_]rank)(=.*)?"
)
#: Last words of the launcher of accelerate.
_ACCELERATE = ("launch", "accelerate-launch", "accelerate.commands.launch")

_NODES = re.compile(r"--?(nnodes|num_machines)")


def quiet(env: Mapping[str, str], runs: Path, *, offline: bool) -> dict[str, str]:
    """Return the variables of a launch, given those that the program has.

    Logging services write below `runs` at most; with `offline`, nothing is downloaded either.
    """
    found = {
        name: value for name, value in _LOGGING.items() if env.get(name) not in _QUIET.get(name, ())
    }
    if not env.get("MLFLOW_TRACKING_URI", "http").startswith(("file:", "sqlite:", "/")):
        found["MLFLOW_TRACKING_URI"] = f"file:{runs / 'mlruns'}"
    return {**found, **(_DOWNLOADS if offline else {})}


def free_port() -> int:
    """Return a TCP port that nothing listens on."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def at_port(words: Sequence[str], port: int) -> tuple[list[str], dict[str, str]]:
    """Return the words and variables with which the ranks of a command meet at a port.

    Both are as before if it starts no ranks, or if it names a place to meet.
    """
    at = _launcher(words)
    if at is None:
        return [*words], {}
    env = {"MASTER_PORT": str(port), "PET_MASTER_PORT": str(port)}
    if PurePath(words[at]).name in _ACCELERATE:
        # It reads no variable.
        return [*words[: at + 1], "--main_process_port", str(port), *words[at + 1 :]], env
    return [*words], env


def _launcher(words: Sequence[str]) -> int | None:
    """Return where the name of the launcher ends; None if there is none, or it needs no port."""
    names = [PurePath(word).name for word in words]
    for at, name in enumerate(names):
        before = names[at - 1] if at else ""
        if (
            name == "torchrun"
            or (before == "-m" and name in ("torch.distributed.run", "torch.distributed.launch"))
            or (name == "launch" and before in ("accelerate", "accelerate.commands.accelerate_cli"))
            or name == "accelerate-launch"
            or (before == "-m" and name == "accelerate.commands.launch")
        ):
            break
    else:
        return None
    for position, word in enumerate(words[at + 1 :], at + 1):
        if word.endswith(".py"):
            break  # what follows are options of the program
        if _MEETING.fullmatch(word):
            return None
        option, _, value = word.partition("=")
        if _NODES.fullmatch(option):
            value = value or next(iter(words[position + 1 : position + 2]), "")
            if value not in ("1", "1:1"):
                return None
    return at
