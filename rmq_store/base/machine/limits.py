"""What this process may use of the machine: memory, space, bandwidth. Containers tell it in their cgroups, of either version.

Reads /proc and /sys only; the control plane, any thread. What is not told is None, never a guess.
"""
import contextlib
import os
import re
import resource
from collections.abc import Iterator, Mapping

from rmq_store.base.machine.device import mount_of

__all__ = ["LOG_DESCRIPTORS", "descriptors", "descriptors_kept", "descriptors_of_queues", "existing", "free_bytes",
           "huge_pages", "in_container", "in_memory", "io_limits", "maps", "memory_limit", "memory_of_machine",
           "raise_descriptors", "refused_text"]

LOG_DESCRIPTORS = 128       # of the log at most: two for each file that no flush has reached (base/segment/_descriptors.pxd)
_UNLIMITED = 1 << 60        # cgroup v1 says "no limit" with a number around 2**63


def memory_of_machine() -> int:
    """Bytes of memory that the kernel manages (MemTotal of /proc/meminfo)."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_limit(root: str = "/") -> int:
    """Bytes: the machine's memory, or the least limit of the cgroups this process is in. root: another /, for tests."""
    limits = [memory_of_machine()]
    for folder in _folders("memory", root):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            text = _text(folder, name)
            if text is not None and text.isdecimal() and 0 < int(text) < _UNLIMITED:
                limits.append(int(text))
    return min(limits)


def io_limits(device: str, root: str = "/") -> dict[str, int]:
    """What cgroups allow of the block device "major:minor": rbps, wbps (bytes a second), riops, wiops; only what is limited."""
    found: dict[str, int] = {}

    def least(name: str, text: str) -> None:
        if text.isdecimal():
            found[name] = min(found.get(name, int(text)), int(text))

    v1 = {"rbps": "read_bps", "wbps": "write_bps", "riops": "read_iops", "wiops": "write_iops"}
    for controller in ("io", "blkio"):
        for folder in _folders(controller, root):
            for line in (_text(folder, "io.max") or "").splitlines():
                number, _, rest = line.partition(" ")
                if number == device:
                    for name, _, value in (part.partition("=") for part in rest.split()):
                        least(name, value)
            for name, file in v1.items():
                for line in (_text(folder, f"blkio.throttle.{file}_device") or "").splitlines():
                    number, _, value = line.partition(" ")
                    if number == device:
                        least(name, value.strip())
    return found


def descriptors() -> int:
    """How many files this process may have open: its soft RLIMIT_NOFILE."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def descriptors_kept(limit: int) -> int:
    """Of so many descriptors, those that connections leave to the store. native/include/rmq_descriptors.h says the same."""
    return min(limit // 4 + 256, limit // 2)


def descriptors_of_queues(most: int) -> int:
    """Of `most` descriptors for files of queues, those that one look at a store may keep open: two looks, and what else the
    process has open, fit into the limit."""
    return min(most, descriptors() // 4)


def refused_text(counts: Mapping[str, int], most: int) -> str:
    """What a server says when it closes connections at once. counts: of its front; most: connections that it has places for."""
    return (f"connections are closed at once, {counts['refused']} so far: there are {counts['connections']} of {most}, and the "
            f"limit on open files is {descriptors()}, of which {descriptors_kept(descriptors())} stay for the store: raise it "
            "(ulimit -n, LimitNOFILE=)")


def raise_descriptors() -> None:
    """Raises the soft limit on open files to the hard one. For a process that is a server: a program that waits by select()
    may not have descriptors of 1,024 and above."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):      # where the kernel has a lower one, that of before stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def maps() -> int | None:
    """How many maps the kernel gives a process (vm.max_map_count)."""
    text = _text("/proc/sys/vm/max_map_count")
    return int(text) if text is not None and text.isdecimal() else None


def in_container(root: str = "/") -> str | None:
    """The container this process is in, as far as it shows: "docker", "podman", "kubernetes", another name, or None."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if os.path.exists(os.path.join(root, ".dockerenv")):
        return "docker"
    if os.path.exists(os.path.join(root, "run/.containerenv")):
        return "podman"
    text = _text(root, "proc/1/environ") or ""
    match = re.search(r"(?:^|\0)container=([^\0]+)", text)
    return match[1] if match else None


def huge_pages(root: str = "/") -> str | None:
    """Why the pool, which is shared memory, gets no huge pages though it asks; None: it may get them, or nobody tells."""
    name = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
    text = _text(root, name)
    if text is None or any(f"[{word}]" in text for word in ("always", "advise", "within_size", "force")):
        return None
    return f"/{name} is {text}"


def existing(path: str) -> str:
    """`path`, or the nearest directory above it that exists."""
    while not os.path.isdir(path):
        above = os.path.dirname(path)
        if above == path:
            break
        path = above
    return path


def free_bytes(path: str) -> int:
    """Bytes that may still be written below `path`, which need not exist; in memory file systems no more than memory allows."""
    place = existing(path)
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    return min(free, memory_limit()) if in_memory(place) else free


def in_memory(path: str) -> bool:
    """Whether a path lies in a file system without a device."""
    return mount_of(path)[1] in ("tmpfs", "ramfs")


def _folders(controller: str, root: str) -> Iterator[str]:
    """The cgroup directories that bind this process, its own first, then those above."""
    for line in (_text(root, "proc/self/cgroup") or "").splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mount in _mounts(root, controller if controllers else None):
            parts = [p for p in place.split("/") if p and p != ".."]
            for n in range(len(parts), -1, -1):
                folder = os.path.join(mount, *parts[:n])
                if os.path.isdir(folder):
                    yield folder


def _mounts(root: str, controller: str | None) -> Iterator[str]:
    """Where the hierarchy of a v1 controller, or that of v2 (None), is mounted."""
    for line in (_text(root, "proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = (right.split() + ["", "", ""])[:3]
        if (controller is None and kind == "cgroup2") or (
                controller is not None and kind == "cgroup" and controller in options.split(",")):
            yield os.path.join(root, left.split()[4].lstrip("/"))


def _text(*parts: str) -> str | None:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
