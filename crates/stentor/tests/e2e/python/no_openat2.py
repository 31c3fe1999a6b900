"""Runs a command under a system call filter that answers ENOSYS to `openat2`.

This is what systemd's RestrictSUIDSGID= does to a unit, and with it DynamicUser=.
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
OPENAT2 = 437  # the same on every architecture

BPF_LOAD_WORD = 0x20
BPF_JUMP_IF_EQUAL = 0x15
BPF_RETURN = 0x06
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_RET_ERRNO = 0x00050000


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


FILTER = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in [
        (BPF_LOAD_WORD, 0, 0, 0),  # the number of the system call
        (BPF_JUMP_IF_EQUAL, 0, 1, OPENAT2),
        (BPF_RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.ENOSYS),
        (BPF_RETURN, 0, 0, SECCOMP_RET_ALLOW),
    ]
)

libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(FILTER) // 8, FILTER)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(
    PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0
):
    sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
