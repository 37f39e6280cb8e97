"""A real file system on a disk that remembers the order of its writes and flushes: logdisk (FUSE) below a loop device.

Needs root, /dev/fuse, loop devices, FUSE 3 to compile with, and mkfs; `missing()` says what is not there.
"""
import ctypes
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

SOURCE = Path(__file__).with_name("logdisk.c")
HEAD = struct.Struct("<IIQ")
WRITE, FLUSH, MARK = 1, 2, 3
PATIENCE_S = 60
CLONE_NEWNS = 0x20000
MKFS = {"ext4": ("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=8", "-E", "lazy_itable_init=1,nodiscard"),
        "xfs": ("mkfs.xfs", "-q", "-f", "-K")}
# A log that a dead file system left has the name of the one that is mounted beside it.
MOUNT = {"ext4": "noinit_itable,errors=remount-ro", "xfs": "nouuid"}
IMAGE_BYTES = 512 << 20


def call(*command: str | Path) -> str:
    """What the command prints. Raises CalledProcessError, whose stderr says why."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def missing() -> str | None:
    """Why this machine cannot do it, None where it can: it is tried."""
    if os.geteuid() != 0:
        return "mounts need root"
    for tool in ("cc", "pkg-config", "losetup", "mount", "mkfs.ext4", "mkfs.xfs"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    if not os.access("/dev/fuse", os.W_OK):
        return "no /dev/fuse"
    with tempfile.TemporaryDirectory(prefix="rmq-power-") as room:
        try:
            program = build(Path(room))
            image = make_image(Path(room) / "image", "ext4", 64 << 20)
            with Disk(Path(room) / "disk", image, "ext4", log=Path(room) / "log", program=program):
                pass
        except subprocess.CalledProcessError as error:
            return f"{Path(error.cmd[0]).name}: {(error.stderr or '').strip()[-200:]}"
        except OSError as error:
            return str(error)
    return None


def build(room: Path) -> Path:
    """logdisk, compiled into `room`."""
    program = room / "logdisk"
    call("cc", "-O2", "-o", program, SOURCE, *call("pkg-config", "--cflags", "--libs", "fuse3").split())
    return program


def make_image(image: Path, kind: str, size: int = IMAGE_BYTES) -> Path:
    """An empty file system of this kind in a sparse file."""
    with open(image, "wb") as file:
        file.truncate(size)
    call(*MKFS[kind], image)
    return image


def copy_image(source: Path, target: Path) -> Path:
    call("cp", "--sparse=auto", source, target)
    return target


def own_mounts() -> None:
    """What this process mounts from here on is seen by nobody else, and goes with it however it ends. A process that takes
    a copy of all mounts, as a container does, would keep a disk busy."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    call("mount", "--make-rprivate", "/")


class Unmountable(Exception):
    """The kernel refuses what the cut left of the file system: nobody's store is to blame."""


@dataclass
class Disk:
    """`image` mounted at `place`, in a directory of its own. With `log` through logdisk, and what is written and marked is
    recorded there; without it the image is mounted as it is."""

    room: Path
    image: Path
    kind: str
    log: Path | None = None
    program: Path | None = None
    seed: int = 1
    loop: str = ""
    daemon: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.fuse, self.place = self.room / "fuse", self.room / "mount"

    def __enter__(self) -> "Disk":
        self.fuse.mkdir(parents=True, exist_ok=True)
        self.place.mkdir(exist_ok=True)
        try:
            below = self.image if self.log is None else self._start()
            self.loop = call("losetup", "--direct-io=on" if self.log else "--direct-io=off", "--find", "--show", below)
            tried = subprocess.run(["mount", "-t", self.kind, "-o", MOUNT[self.kind], self.loop, str(self.place)],
                                   capture_output=True, text=True)
            call("losetup", "-d", self.loop)        # goes with its last user, which is the mount
            if tried.returncode:
                raise Unmountable(tried.stderr.strip())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _until("umount", lambda: subprocess.run(["umount", str(self.place)], capture_output=True).returncode == 0)
        self._stop()

    def _start(self) -> Path:
        assert self.program is not None and self.log is not None
        command = [str(part) for part in (self.program, self.image, self.log, self.fuse, self.seed)]
        self.daemon = subprocess.Popen(command, stderr=subprocess.PIPE)
        disk = self.fuse / "disk"
        _until("start of logdisk", lambda: disk.exists() or self.daemon is None or self.daemon.poll() is not None)
        if self.daemon.poll() is not None:
            raise OSError(f"logdisk: {self.daemon.communicate()[1].decode().strip()}")
        return disk

    def _stop(self) -> None:
        if self.daemon is not None:
            _until("end of logdisk", lambda: self.daemon is None or self.daemon.poll() is not None or subprocess.run(
                ["umount", str(self.fuse)], capture_output=True).returncode == 0)
            self.daemon.wait(PATIENCE_S)
            assert self.daemon.stderr is not None
            self.daemon.stderr.close()
            self.daemon = None

    def control(self, command: str) -> None:
        """One command for the disk; see logdisk.c."""
        (self.fuse / "control").write_text(command)

    @property
    def marks(self) -> Path | None:
        """Where marks are written, None where nothing is recorded."""
        return None if self.log is None else self.fuse / "marks"


def _until(what: str, done: object) -> None:
    """Asks again until it is so: the kernel gives up a loop device or a mount when its last user is through."""
    assert callable(done)
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.01)


class Record(NamedTuple):
    """One record of a log; its bytes stand at `at` in the log file."""

    kind: int
    length: int
    offset: int
    at: int


class Log:
    """A finished log: what kind of record comes where; bytes are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")         # as long as this object
        self.records = list(self._read())

    def _read(self) -> Iterator[Record]:
        at = 0
        while len(head := self._file.read(HEAD.size)) == HEAD.size:
            kind, length, offset = HEAD.unpack(head)
            at += HEAD.size
            yield Record(kind, length, offset, at)
            at += length
            self._file.seek(at)

    def bytes_of(self, record: Record) -> bytes:
        return os.pread(self._file.fileno(), record.length, record.at)

    def close(self) -> None:
        self._file.close()
