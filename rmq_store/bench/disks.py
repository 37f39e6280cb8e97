"""Disks to compare that this process makes itself, as root: loop devices with ext4, xfs or btrfs, one over memory, tmpfs, and
a throttled one.

They live in a mount namespace of this thread and its children, the image is unlinked as soon as it is in use and the loop
device goes with its mount: whatever ends the process, nothing stays. A loop device is not the disk below it: compare such
disks with one another. What cannot be made here is skipped with its reason.
"""
import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNS = 0x00020000
IMAGE_MIB = 3072
# The throttled disk: about a cloud volume of the cheap kind.
THROTTLE_BYTES, THROTTLE_WRITES = 60 << 20, 1000

DISKS = {
    "ext4": "a loop device with ext4 and its journal",
    "xfs": "a loop device with xfs",
    "btrfs": "a loop device with btrfs",
    "tmpfs": "memory: what the code costs without a device",
    "memory": "a loop device over memory, all of it touched before, with ext4: a fast device",
    "throttled": f"ext4 on a loop device whose cgroup holds it to {THROTTLE_BYTES >> 20} MiB/s and {THROTTLE_WRITES} writes/s",
}


class CannotMake(Exception):
    """This disk cannot be made here; the text says why."""


@dataclass(frozen=True)
class Place:
    """Where runs happen: a directory, its name in reports, and the cgroup that a run has to join (or "")."""

    path: Path
    name: str = ""
    cgroup: str = ""

    def shown(self) -> str:
        return self.name or str(self.path)


def _do(*command: str) -> str:
    """Output of a tool. Raises CannotMake where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        packages = {"mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs", "mkfs.ext4": "e2fsprogs"}
        raise CannotMake(f"{command[0]} is not installed (package {packages.get(command[0], 'util-linux or mount')})") from None
    if done.returncode != 0:
        raise CannotMake(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def _own_mounts() -> None:
    """From here on mounts of this thread are its own and its children's. Where that is refused they are the machine's."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) == 0:
        with suppress(CannotMake):      # in a chroot / is no mount point
            _do("mount", "--make-rprivate", "/")


@contextmanager
def _mounted(point: Path, *arguments: str) -> Iterator[None]:
    point.mkdir()
    _do("mount", *arguments, str(point))
    try:
        yield
    finally:
        subprocess.run(["umount", str(point)], capture_output=True, check=False)


def _image(path: Path, mib: int) -> None:
    """Written, not reserved: else the file system below would pay for each first write of a block. Past the page cache where
    it can: the image would take the memory that the runs are to have."""
    free = os.statvfs(path.parent)
    if free.f_bavail * free.f_frsize >> 20 < mib + 512:
        raise CannotMake(f"{path.parent} has no room for an image of {mib} MiB")
    flags = os.O_CREAT | os.O_WRONLY
    try:
        fd = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        fd = os.open(path, flags, 0o600)
    try:
        with mmap.mmap(-1, 1 << 20) as block:       # aligned
            for _ in range(mib):
                if os.write(fd, block) != len(block):
                    raise CannotMake(f"{path}: an image of {mib} MiB was written in part only")
        os.fsync(fd)
    finally:
        os.close(fd)


def _loop(image: Path) -> str:
    """A loop device on the image, past the page cache where the file below can."""
    try:
        return _do("losetup", "--find", "--show", "--direct-io=on", str(image))
    except CannotMake:
        return _do("losetup", "--find", "--show", str(image))


@contextmanager
def _on_loop(kind: str, base: Path, mib: int, room: Path | None = None) -> Iterator[tuple[Path, str]]:
    """(mount point, device) of a new file system. room: where its image lies."""
    image, point = (room or base) / "image", base / "mount"
    if shutil.which(f"mkfs.{kind}") is None:
        _do(f"mkfs.{kind}")     # says what is missing, before the image is written
    _image(image, mib)
    device = _loop(image)
    try:
        # Discarded blocks would have to be touched again.
        options = ["-F", *(["-E", "nodiscard"] if room else [])] if kind == "ext4" else ["-f"]
        _do(f"mkfs.{kind}", *options, "-q", device)
        image.unlink()
        with _mounted(point, "-t", kind, device):
            subprocess.run(["losetup", "--detach", device], capture_output=True, check=False)      # as soon as it is unmounted
            yield point, device
    finally:
        subprocess.run(["losetup", "--detach", device], capture_output=True, check=False)


def _cgroup_mounts() -> Iterator[tuple[str, str, str]]:
    """(kind, mount point, options) of cgroup file systems."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        kind, _, options = right.split()[:3]
        if kind in ("cgroup", "cgroup2"):
            yield kind, left.split()[4], options


@contextmanager
def _throttle(device: str) -> Iterator[str]:
    """A cgroup whose writes to the device are held back."""
    number = os.stat(device).st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    for kind, point, options in _cgroup_mounts():
        group = Path(point) / f"rmqbench.{os.getpid()}"
        if kind == "cgroup2" and "io" in (Path(point) / "cgroup.controllers").read_text().split():
            with suppress(OSError):
                (Path(point) / "cgroup.subtree_control").write_text("+io")
            limits = {"io.max": f"{name} wbps={THROTTLE_BYTES} wiops={THROTTLE_WRITES}"}
        elif kind == "cgroup" and "blkio" in options.split(","):
            # Version 1 holds back who syncs or writes directly; what the kernel writes back by itself goes at full speed.
            limits = {"blkio.throttle.write_bps_device": f"{name} {THROTTLE_BYTES}",
                      "blkio.throttle.write_iops_device": f"{name} {THROTTLE_WRITES}"}
        else:
            continue
        try:
            group.mkdir()
            for file, text in limits.items():
                (group / file).write_text(text)
        except OSError as error:
            with suppress(OSError):
                group.rmdir()
            raise CannotMake(f"{error.filename or group}: {error.strerror}: this kernel or container does not let cgroups "
                             "hold back I/O") from error
        try:
            yield str(group)
        finally:
            with suppress(OSError):
                group.rmdir()
        return
    raise CannotMake("no cgroup file system with the controller io (version 2) or blkio (version 1) is mounted")


@contextmanager
def _made(kind: str, base: Path, mib: int) -> Iterator[Place]:
    with ExitStack() as stack:
        if kind == "tmpfs":
            stack.enter_context(_mounted(base / "mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs"))
            yield Place(base / "mount", kind)
            return
        room = base / "room" if kind == "memory" else None
        if room:
            stack.enter_context(_mounted(room, "-t", "tmpfs", "-o", f"size={mib + 1024}m,huge=always", "tmpfs"))
        point, device = stack.enter_context(_on_loop("ext4" if kind in ("throttled", "memory") else kind, base, mib, room))
        cgroup = stack.enter_context(_throttle(device)) if kind == "throttled" else ""
        yield Place(point, kind, cgroup)


@contextmanager
def made(kinds: list[str], under: Path, mib: int = IMAGE_MIB) -> Iterator[tuple[list[Place], dict[str, str]]]:
    """The disks of DISKS asked for, with images under `under`; and of those that cannot be made, why. All go at the end."""
    places: list[Place] = []
    refused: dict[str, str] = {}
    with ExitStack() as stack:
        if kinds and os.geteuid() != 0:
            yield [], dict.fromkeys(kinds, "disks are made by root only: give --dir DIR on a disk of that type")
            return
        if kinds:
            under.mkdir(parents=True, exist_ok=True)
            _own_mounts()
        for kind in kinds:
            base = Path(tempfile.mkdtemp(prefix="rmqbench.", dir=under))
            stack.callback(shutil.rmtree, base, ignore_errors=True)
            try:
                places.append(stack.enter_context(_made(kind, base, mib)))
            except CannotMake as why:
                refused[kind] = str(why)
        yield places, refused
