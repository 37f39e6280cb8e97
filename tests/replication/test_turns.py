"""Which threads have short turns (native/include/rmq_cpu.h): those on the way to a slave and back, and no others."""
import ctypes
import platform
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from tests.replication.pairs import caught_up, fill, joined, master, slave

GETATTR = {"x86_64": 315, "aarch64": 275}
SIZE, RUNTIME_AT, SHORT_NS = 56, 24, 100_000


def turns() -> dict[str, set[int]]:
    """The slices of this process's threads by their names, in ns; skips where the kernel does not tell."""
    if (number := GETATTR.get(platform.machine())) is None:
        pytest.skip(f"no number of sched_getattr for {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    found: dict[str, set[int]] = {}
    for task in Path("/proc/self/task").iterdir():
        attributes = ctypes.create_string_buffer(SIZE)
        with suppress(FileNotFoundError, ProcessLookupError):       # a thread that has ended
            if libc.syscall(number, int(task.name), attributes, SIZE, 0) == 0:
                name = (task / "comm").read_text().strip()
                found.setdefault(name, set()).add(struct.unpack_from("=Q", attributes, RUNTIME_AT)[0])
    if not any(runtime for slices in found.values() for runtime in slices):
        pytest.skip("this kernel tells no slices: it is older than 6.12")
    return found


def test_the_two_threads_of_a_pair_have_short_turns(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        joined(m)
        fill(m, 10)
        caught_up(s, m)
        found = turns()
    assert found.pop("rmq-ha") == found.pop("rmq-ha-slave") == {SHORT_NS}
    assert found and all(SHORT_NS not in slices for slices in found.values())
