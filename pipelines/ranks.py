"""Environment variables of distributed programs, for the tasks that srun starts.

PyTorch's `init_process_group` reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and programs
read LOCAL_RANK to choose a GPU (PyTorch, "Distributed communication package").  torchrun, which
starts the ranks of a node itself, reads the options of its rendezvous from PET_*.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

#: Sets the variables in a task of srun, unless they are set or there is only one task.  The first
#: node of a step may not be resolvable by its name; the node that started srun is then the address.
_SCRIPT = """\
if [ "${SLURM_NTASKS:-1}" -gt 1 ]; then
nodes=${SLURM_STEP_NODELIST:-$SLURM_JOB_NODELIST}
head=$(scontrol show hostnames "$nodes" 2>/dev/null | head -n 1)
getent hosts "$head" >/dev/null 2>&1 || head=$SLURM_LAUNCH_NODE_IPADDR
: "${MASTER_ADDR:=$head}" "${MASTER_PORT:=$((20000 + SLURM_JOB_ID % 40000))}"
: "${RANK:=$SLURM_PROCID}" "${LOCAL_RANK:=$SLURM_LOCALID}" "${WORLD_SIZE:=$SLURM_NTASKS}"
: "${NODE_RANK:=$SLURM_NODEID}" "${LOCAL_WORLD_SIZE:=${SLURM_STEP_TASKS_PER_NODE%%(*}}"
: "${PET_NNODES:=$SLURM_NNODES}" "${PET_RDZV_BACKEND:=c10d}" "${PET_RDZV_ID:=$SLURM_JOB_ID}"
: "${PET_RDZV_ENDPOINT:=$MASTER_ADDR:$MASTER_PORT}"
export MASTER_ADDR MASTER_PORT NODE_RANK PET_NNODES PET_RDZV_BACKEND PET_RDZV_ID PET_RDZV_ENDPOINT
[ "$0" = node ] || export RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE
fi
exec "$@"
"""

#: Modules that Python runs as torchrun.
_MODULES = ("torch.distributed.run", "torch.distributed.launch")


def starts_ranks(command: Sequence[str]) -> bool:
    """Return whether a command runs torchrun, which starts the ranks of a node by itself."""
    return any(PurePath(word).name == "torchrun" or word in _MODULES for word in command)


def with_ranks(command: Sequence[str]) -> list[str]:
    """Return a command that srun starts, with the variables of its rank.

    A program that starts ranks by itself gets those of the node alone.
    """
    return ["sh", "-c", _SCRIPT, "node" if starts_ranks(command) else "rank", *command]
