"""What the machine lets a store do in one directory, found out by doing it there, not by version numbers.

`probe` tries: io_uring step by step, direct I/O, reserving space; with `measure` also what a sync costs on reserved and on
written blocks. The control plane, any thread; a probe takes some milliseconds and two syncs, and leaves nothing behind.
"""
import errno
import importlib.util
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rmq_store.base.io._io import IoTable
from rmq_store.base.machine import device, limits
from rmq_store.log.flush._uring import uring_probe

__all__ = ["Capability", "probe"]

BLOCK = 4096
_SYNCS = 24                 # of each kind, where syncs are timed
_COUNTED = 4                # and where journal commits are counted
_SYNC_BUDGET_S = 1.0


@dataclass
class Capability:
    """The facts about one directory and this process. Sizes in bytes, times in seconds; None: not known."""

    path: str
    kernel: str = ""
    container: str | None = None
    seccomp: str | None = None          # "off", "strict", "filter"
    io_uring_disabled: int | None = None        # kernel.io_uring_disabled: 0, 1 (only a group), 2
    uring: dict[str, Any] = field(default_factory=dict)     # flush._uring.uring_probe
    uring_opcodes: dict[str, bool] | None = None            # the PyPI binding's second opinion; None: it gave none
    uring_opcodes_error: str = ""       # why not, where it is installed
    memlock: int | None = None          # -1: unlimited
    files: int | None = None
    memory: int = 0
    memory_machine: int = 0
    file_system: str = ""               # as mountinfo names it; from statfs where that has no line: a name, or 0x...
    mount_point: str = ""               # and then these two are empty
    mount_options: str = ""
    device: dict[str, Any] = field(default_factory=dict)
    device_limits: dict[str, int] = field(default_factory=dict)
    free: int = 0
    total: int = 0
    used_pct: float = 0.0               # of what is not reserved for root
    writable: bool = True
    write_error: int = 0                # why not
    fallocate_error: int = 0
    fallocate_reserves: bool = False
    sync_reserved_s: float | None = None        # median of a 4 KiB write and fdatasync on reserved, never written blocks
    sync_written_s: float | None = None         # on blocks that were written before
    commits_reserved: float | None = None       # journal commits a sync, where the kernel tells
    commits_written: float | None = None

    def uring_refusal(self) -> tuple[int, str] | None:
        """The errno and the step that keeps io_uring from working at all; None: it works."""
        for step in ("setup", "file", "write", "sync"):
            if self.uring.get(step):
                return int(self.uring[step]), step
        return None

    def direct_refusal(self) -> int:
        """errno why there is no direct I/O, 0 where there is."""
        for step in ("direct", "direct_write", "direct_sync"):
            if self.uring.get(step):
                return int(self.uring[step])
        return 0 if self.uring.get("direct") == 0 else errno.EOPNOTSUPP

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def probe(path: str | os.PathLike[str], *, measure: bool = False, io: IoTable | None = None) -> Capability:
    """The facts about the directory `path`, or the nearest one above it that exists.

    measure: also times some syncs, about a second. io: the calls io_uring is tried with. Raises OSError only
    where nothing about the directory can be read.
    """
    place = limits.existing(os.path.abspath(os.fspath(path)))
    opcodes, opcodes_error = _second_opinion()
    mount, kind, _, options = device.mount_of(place)
    usage = psutil.disk_usage(place)
    found = Capability(
        path=place, kernel=platform.release(), container=limits.in_container(), seccomp=_seccomp(),
        io_uring_disabled=_number("/proc/sys/kernel/io_uring_disabled"), uring_opcodes=opcodes,
        uring_opcodes_error=opcodes_error,
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memory=limits.memory_limit(), memory_machine=psutil.virtual_memory().total, file_system=kind, mount_point=mount,
        mount_options=options, device=device.describe(Path(place)), device_limits=_limits(place), free=usage.free,
        total=usage.total, used_pct=usage.percent)
    found.uring = uring_probe(place, io)
    scratch = os.path.join(place, f".rmqstore-probe-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        fd = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        found.writable, found.write_error = False, error.errno or 0
        return found
    try:
        _try_reserving(found, fd)
        if measure and not found.fallocate_error:
            _time_syncs(found, fd)
    finally:
        os.close(fd)
        os.unlink(scratch)
    return found


def _try_reserving(found: Capability, fd: int) -> None:
    size = 1 << 20
    try:
        os.posix_fallocate(fd, 0, size)
        found.fallocate_reserves = os.fstat(fd).st_blocks * 512 >= size
    except OSError as error:
        found.fallocate_error = error.errno or 0


def _time_syncs(found: Capability, fd: int) -> None:
    """A sync after each 4 KiB write: in turn on a block that is only reserved, and on the same one, which is written by then;
    so what else continues meets both. Journal commits are counted on further blocks, one kind after the other."""
    data = b"\x55" * BLOCK
    clock = time.perf_counter

    def step(i: int) -> float:
        begin = clock()
        os.pwrite(fd, data, i * BLOCK)
        os.fdatasync(fd)
        return clock() - begin

    with suppress(OSError):
        os.posix_fallocate(fd, 0, (_SYNCS + _COUNTED) * BLOCK)
        os.fsync(fd)
        begin = clock()
        reserved, written = [], []
        for i in range(_SYNCS):
            reserved.append(step(i))
            written.append(step(i))
            if i >= 4 and clock() - begin > _SYNC_BUDGET_S:
                break
        found.sync_reserved_s, found.sync_written_s = statistics.median(reserved), statistics.median(written)
        found.commits_reserved = _commits(found.path, step)
        found.commits_written = _commits(found.path, step)


def _commits(path: str, step: Callable[[int], float]) -> float | None:
    """Journal commits a sync, where the kernel tells."""
    with device.DeviceWatch(Path(path)) as watch:
        for i in range(_COUNTED):
            step(_SYNCS + i)
    return watch.figures(_COUNTED).get("journal_commits_per_step")


def _limits(place: str) -> dict[str, int]:
    block = device.block_device(place)
    number = None
    with suppress(OSError):
        number = (Path(block) / "dev").read_text().strip() if block is not None else None
    return limits.io_limits(number) if number else {}


def _seccomp() -> str | None:
    with suppress(OSError, StopIteration, KeyError):
        lines = Path("/proc/self/status").read_text().splitlines()
        value = next(line.split()[1] for line in lines if line.startswith("Seccomp:"))
        return {"0": "off", "1": "strict", "2": "filter"}[value]
    return None


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


# Run by a child: wheels of the binding were built for one CPU and die of an illegal instruction on an older one.
_ASK_BINDING = """
import json, liburing
try:
    said = {str(name): bool(there) for name, there in liburing.probe().items()}
except (OSError, RuntimeError):     # the latter: it could not make a ring either
    said = {}
print(json.dumps(said))
"""


def _second_opinion() -> tuple[dict[str, bool] | None, str]:
    """What the PyPI package liburing says about opcodes, {} where it gets no ring; None where it says nothing, and why.

    (None, "") is: not installed.
    """
    if importlib.util.find_spec("liburing") is None:
        return None, ""
    try:
        done = subprocess.run([sys.executable, "-c", _ASK_BINDING], capture_output=True, text=True, check=False, timeout=20,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.returncode < 0:
        return None, f"it died of {signal.Signals(-done.returncode).name}"
    if done.returncode != 0:
        return None, done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
    return json.loads(done.stdout), ""
