"""Refuses system calls that no kernel needs, by a seccomp filter (Linux, x86_64 and aarch64).

The filter reaches what Landlock does not know: sockets of every family, other processes' memory,
priority, processors and limits, namespaces, clocks, and sessions (a process that could leave its
session could hide from the judge).  A pair of connected sockets stays allowed.  Imports nothing but
the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

#: Refused calls: numbers on x86_64 and aarch64.
_REFUSED = {
    "socket": (41, 198), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "setsid": (112, 157), "perf_event_open": (298, 241),
    # Namespaces and file systems.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    "quotactl": (179, 60), "fanotify_init": (300, 262),
    # The kernel and the machine.
    "bpf": (321, 280), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116), "sethostname": (170, 161),
    "setdomainname": (171, 162), "execveat": (322, 281),
    # Clocks.
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
}  # fmt: skip

#: Refused calls that only x86_64 has: iopl, ioperm and modify_ldt.
_REFUSED_X86 = (172, 173, 154)

#: Calls that may name this process only: the first argument is a process.
_OWN = {
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "prlimit64": (302, 261),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
}  # fmt: skip

#: Calls whose first argument says what the second names, and its value for all of a user.
_PRIORITY = {"setpriority": (141, 140, 2), "ioprio_set": (251, 30, 3)}

_CLONE, _CLONE3 = (56, 220), 435

#: Flags of clone for new namespaces.
_NAMESPACES = 0x7E020000

#: Architectures of the audit interface, and their column above.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

#: Numbers from here on are of the x32 interface.
_X32 = 0x40000000

#: Instructions of the filter, and offsets of what it reads.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, (16, 24)
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

#: seccomp(SET_MODE_FILTER) for all threads, without slower speculation.
_SECCOMP, _SET_FILTER, _ALL_THREADS, _SPECULATE = (317, 277), 1, 1, 4

_Instruction = tuple[int, int, int, int]


def install() -> bool:
    """Refuse the calls to every thread of this process and its children; return whether it did.

    The process must have no_new_privs.
    """
    found = _MACHINES.get(platform.machine())
    if found is None:
        return False
    program = b"".join(struct.pack("=HBBI", *one) for one in instructions(*found, os.getpid()))
    held = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _ALL_THREADS | _SPECULATE
    return bool(libc.syscall(_SECCOMP[found[1]], _SET_FILTER, flags, filter_) == 0)


def instructions(machine: int, column: int, pid: int) -> Iterator[_Instruction]:
    """Yield the filter for a machine: operation, jumps if true and if false, operand."""
    refuse = (_RETURN, 0, 0, _ERROR | errno.EPERM)
    missing = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    allow = (_RETURN, 0, 0, _ALLOW)
    first, second = _ARGUMENTS
    yield (_LOAD, 0, 0, _MACHINE)
    yield (_EQUAL, 1, 0, machine)
    yield refuse
    yield (_LOAD, 0, 0, _NUMBER)
    if column == 0:
        yield (_AT_LEAST, 0, 1, _X32)
        yield missing
    x86 = _REFUSED_X86 if column == 0 else ()
    for number in (*(numbers[column] for numbers in _REFUSED.values()), *x86):
        yield from ((_EQUAL, 0, 1, number), refuse)
    # A filter cannot see the flags of clone3; the C library uses clone then.
    yield from ((_EQUAL, 0, 1, _CLONE3), missing)
    yield from ((_EQUAL, 0, 4, _CLONE[column]), (_LOAD, 0, 0, first))
    yield from ((_ANY_BIT, 0, 1, _NAMESPACES), refuse, allow)
    for numbers in _OWN.values():
        yield from ((_EQUAL, 0, 5, numbers[column]), (_LOAD, 0, 0, first))
        yield from ((_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, pid), refuse, allow)
    for *of_machines, user in _PRIORITY.values():
        yield from ((_EQUAL, 0, 7, of_machines[column]), (_LOAD, 0, 0, first), (_EQUAL, 3, 0, user))
        yield from ((_LOAD, 0, 0, second), (_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, pid), refuse, allow)
    yield allow
