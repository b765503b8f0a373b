"""Ends what was launched on another machine when the connection to it ends.

It is a shell script, since no other tool can be assumed on that machine.  It is one line without
backslashes and single quotes, which every login shell passes on unchanged.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Sequence

#: Marks the processes of a launch, whatever sessions they create: they inherit the environment.
VARIABLE = "PERFPIPE_LAUNCH"

_SCRIPT = " ".join(
    (
        "exec 3<&0 </dev/null;",
        # Numbers of the processes of this launch.
        f'mine() {{ grep -slzxF "{VARIABLE}=$0" /proc/[0-9]*/environ | cut -d/ -f3; }};',
        "end() { kill -TERM $(mine); for i in 1 2 3 4 5 6; do sleep 0.5;",
        '[ -n "$(mine)" ] || return; done; kill -KILL $(mine); };',
        # Input that ends without the first line was never connected, so it means nothing.
        "{ read -r go && { while read -r go; do :; done; end; }; } <&3 >/dev/null 2>&1 &",
        "watcher=$!; exec 3<&-;",
        "leave() { kill $watcher; exit $1; };",
        f'env {VARIABLE}="$0" "$@"; status=$?;',
        # Processes that the program leaves running would keep the connection open.
        'for i in 1 2 3 4 5 6 7 8 9 10; do [ -n "$(mine)" ] || leave $status; sleep 0.5; done;',
        "end >/dev/null 2>&1; leave $status",
    )
)


def guarded(command: Sequence[str]) -> str:
    """Return a command line for a remote shell; its standard input must begin with a line."""
    return shlex.join(["sh", "-c", _SCRIPT, uuid.uuid4().hex, *command])
