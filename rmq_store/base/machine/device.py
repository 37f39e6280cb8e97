"""The device under a directory: what it is, and its counters, flushes and journal commits above all.

Reads /sys and /proc, and asks statfs. What a kernel or a container does not show is left out of the figures.
"""
import os
import re
import resource
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

_STAT = {"device_writes": 4, "device_sectors": 6, "device_flushes": 15}        # fields of /sys/block/*/stat

MOUNTINFO: "str | Path" = "/proc/self/mountinfo"

# Numbers of linux/magic.h, by the names that mountinfo uses. ext2 and ext3 have that of ext4, whose driver mounts them today.
_NUMBERS = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0xF2F52010: "f2fs", 0x2FC12FC1: "zfs", 0x01021994: "tmpfs",
            0x858458F6: "ramfs", 0x794C7630: "overlay", 0x6969: "nfs", 0xFF534D42: "cifs", 0xFE534D42: "smb3", 0x01021997: "9p",
            0x00C36400: "ceph", 0x65735546: "fuse"}


def file_system(path: str | os.PathLike[str]) -> str:
    """The file system `path` lies on, by statfs; one that is not in the table by its number. Raises OSError."""
    import ctypes  # where mountinfo does not tell, which is seldom

    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(512)       # struct statfs; a long, f_type, is its first member
    if libc.statfs(os.fsencode(path), answer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fspath(path))
    number = ctypes.c_ulong.from_buffer(answer).value & 0xFFFFFFFF
    return _NUMBERS.get(number, f"{number:#x}")


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def mount_of(path: str | os.PathLike[str]) -> tuple[str, str, str, str]:
    """(mount point, file system, source, options) of the mount that `path` lies on.

    In a chroot mountinfo has a line for what is mounted in there, and none for the chroot itself; without /proc it has none at
    all. Then only the file system is known, by statfs, and the others are empty. Raises OSError for a path that is not there.
    """
    here = os.path.realpath(path)
    best = ("", "", "", "")
    for line in (_text(MOUNTINFO) or "").split("\n"):
        left, _, right = line.partition(" - ")
        if not right:
            continue
        point, options = (_unescaped(text) for text in left.split()[4:6])
        kind, source, more = right.split()[:3]
        if (here == point or here.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
            best = (point, kind, source, f"{options},{more}")
    return best if best[1] else ("", file_system(path), "", "")


def block_device(path: "str | Path") -> str | None:
    """The directory in /sys of the whole block device under `path`; None where there is none (tmpfs, overlay, network)."""
    numbers = [os.stat(path).st_dev]
    source = mount_of(path)[2]
    if source.startswith("/dev/") and os.path.exists(source):       # btrfs has a device number of its own
        numbers.append(os.stat(source).st_rdev)
    for number in numbers:
        found = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
        if os.major(number) and os.path.exists(found):
            place = os.path.realpath(found)
            return os.path.dirname(place) if os.path.exists(os.path.join(place, "partition")) else place
    return None


def _text(*parts: "str | Path") -> str | None:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return None


def request_max(path: "str | Path") -> int | None:
    """Bytes of memory in single pages that the device under `path` takes as one request; None where none says so.

    A request has max_segments pages that do not lie side by side. A virtual disk takes 254: every write of 1 MiB became two
    requests, and two interrupts.
    """
    place = block_device(path)
    if place is None:
        return None
    segments, kib = _text(place, "queue", "max_segments"), _text(place, "queue", "max_sectors_kb")
    if segments is None or kib is None:
        return None
    return min(int(segments) * resource.getpagesize(), int(kib) << 10)


def describe(path: "str | Path") -> dict[str, object]:
    """Name, size, and what matters for a sync: write cache, FUA, scheduler, block sizes."""
    place = block_device(path)
    if place is None:
        return {"name": None}
    queue = os.path.join(place, "queue")
    scheduler = re.search(r"\[(.*?)\]", _text(queue, "scheduler") or "")
    facts = {"rotational": "rotational", "write_cache": "write_cache", "fua": "fua", "logical_block": "logical_block_size",
             "physical_block": "physical_block_size"}
    return {"name": os.path.basename(place), "model": _text(place, "device", "model"), "sectors": _text(place, "size"),
            "scheduler": scheduler[1] if scheduler else None, "journal": _journal_kind(path),
            **{name: _text(queue, file) for name, file in facts.items()}}


def _journal_files(path: "str | Path") -> "tuple[str, Path, str] | None":
    """(what counts, file, pattern with one group) of the journal of the file system that `path` is on."""
    from pathlib import Path  # a store looks at no journal

    kind, source = mount_of(path)[1:3]
    name = os.path.basename(os.path.realpath(source))
    if kind in ("ext4", "ext3", "ocfs2"):
        for found in Path("/proc/fs/jbd2").glob(f"{name}-*/info"):
            return "jbd2 transactions", found, r"^(\d+) transactions"
    if kind == "xfs":
        return "xfs log writes", Path(f"/sys/fs/xfs/{name}/stats/stats"), r"^log (\d+)"
    if kind == "btrfs":
        for found in Path("/sys/fs/btrfs").glob(f"*/devices/{name}"):
            return "btrfs commits", found.parents[1] / "commit_stats", r"^commits (\d+)"
    return None


def _journal_kind(path: "str | Path") -> str | None:
    found = _journal_files(path)
    return found[0] if found and found[1].exists() else None


class DeviceWatch:
    """`with DeviceWatch(path) as d:` then `d.figures()`: writes, MiB, flushes and journal commits of the device meanwhile.

    The counters are the device's: others that use it are in them, and so is write-back of what was written before.
    """

    def __init__(self, path: "str | Path") -> None:
        self._place = block_device(path)
        self._journal = _journal_files(path)

    def _counters(self) -> dict[str, int]:
        found = {}
        if self._place is not None:
            numbers = [int(n) for n in (_text(self._place, "stat") or "").split()]
            found = {name: numbers[field] for name, field in _STAT.items() if field < len(numbers)}
        if self._journal is not None:
            match = re.search(self._journal[2], _text(self._journal[1]) or "", re.MULTILINE)
            if match:
                found["journal_commits"] = int(match[1])
        return found

    def __enter__(self) -> Self:
        self._before = self._counters()
        return self

    def __exit__(self, *_: object) -> None:
        after = self._counters()
        self.moved = {k: v - self._before[k] for k, v in after.items() if k in self._before}

    def figures(self, durable_steps: int = 0) -> dict[str, float]:
        """The counters; with `durable_steps` also flushes and journal commits for each of them."""
        found: dict[str, float] = dict(self.moved)
        if "device_sectors" in found:
            found["device_mib"] = round(found.pop("device_sectors") / 2048, 2)
        if durable_steps > 0:
            for name, short in (("device_flushes", "flushes_per_step"), ("journal_commits", "journal_commits_per_step"),
                                ("device_writes", "writes_per_step")):
                if name in found:
                    found[short] = round(found[name] / durable_steps, 3)
        return found
