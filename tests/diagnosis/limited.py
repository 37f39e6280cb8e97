"""Runs Python in a process that may do less: io_uring forbidden by a seccomp filter, or little memory to lock, even as root."""
import ctypes
import json
import os
import pathlib
import platform
import resource
import struct
import subprocess
import sys

import pytest

CAP_IPC_LOCK, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 14, 24, 38, 22
IO_URING_SETUP = 425        # on every architecture


def little_memlock():
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)     # without root the limit counts anyhow
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))


def no_io_uring():
    """io_uring_setup answers EPERM, as it does in a container with Docker's default profile."""
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, 2, program, 0, 0) != 0:
        os._exit(77)


def under(limit, code, *arguments):
    """The command that runs `code` under `limit`: a process that limits itself, and then becomes the one it is about. What
    ran between fork and exec instead could hang where the tests' own process has threads."""
    first = (f"import os, sys\nfrom {__name__} import {limit.__name__}\n{limit.__name__}()\n"
             "os.execv(sys.executable, [sys.executable, '-c', *sys.argv[1:]])")
    return [sys.executable, "-c", first, code, *map(str, arguments)]


def run(limit, code, *arguments):
    """What `code` prints as JSON, in a child under `limit`."""
    if limit is no_io_uring and platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the filter is written for 64-bit machines")
    done = subprocess.run(under(limit, code, *arguments), capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])})
    if done.returncode == 77:
        pytest.skip("no seccomp filter can be set here")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
