"""doctor: what a directory and this process mean for a store there: facts, what follows from them, what helps.

Reads and tries (capability.py), changes nothing. The control plane, any thread.
"""
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.machine.limits import LOG_DESCRIPTORS, huge_pages, maps
from rmq_store.config.load import Options, resolve
from rmq_store.config.values import index_file_size, path_list
from rmq_store.errors import DiskFull
from rmq_store.log.recovery.lockfile import holder, in_use
from rmq_store.log.recovery.places import Places, fit_sizes, infer_sizes, no_directory, root_of
from rmq_store.services.compaction.files import queues_on_disk
from rmq_store.services.integrity.compacted import compaction_findings
from rmq_store.upkeep.doctor.capability import Capability, probe

__all__ = ["Diagnosis", "Verdict", "doctor"]

_GOOD = ("ext4", "xfs", "ext3", "f2fs", "zfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "fuse.sshfs", "vboxsf")
_NO_BARRIER = ("nobarrier", "barrier=0")
_OTHER_FILES, _OTHER_MAPS = 64, 1000        # of a store and its program, whatever the size of the log


@dataclass(frozen=True)
class Verdict:
    """level: "ok", "note" (worth knowing), or "finding" (something to do). cure is empty where there is nothing to do."""

    level: str
    subject: str
    fact: str
    consequence: str
    cure: str = ""


@dataclass
class Diagnosis:
    """What doctor found: `items` in order, `findings` with something to do; `capability`: the facts; `options`: the judged."""

    path: str
    capability: Capability
    options: Options
    items: list[Verdict] = field(default_factory=list)

    @property
    def findings(self) -> list[Verdict]:
        return [item for item in self.items if item.level == "finding"]

    @property
    def healthy(self) -> bool:
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        return {"path": self.path, "healthy": self.healthy, "items": [asdict(i) for i in self.items],
                "capability": self.capability.as_dict()}


def doctor(path: str | os.PathLike[str], *, profile: object = None, config: object = None, measure: bool = True,
           **options: Any) -> Diagnosis:
    """Checks whether the directory `path`, which need not exist yet, suits a store with these options.

    measure: also time some syncs in it, about a second at most. The other arguments are those of MessageStore.open. Raises
    ConfigError, OSError if nothing can be read. It leaves no file behind. Thread-safety: any.
    """
    root = root_of(path)
    if os.path.exists(root) and not os.path.isdir(root):
        raise no_directory(root)
    chosen = resolve(profile, options, root, config=config, environment=os.environ)
    chosen = fit_sizes(root, chosen.inferred(infer_sizes(root, chosen)))
    logs = path_list(chosen.commitlog_path)
    found = Diagnosis(root, probe(logs[0] if logs else root, measure=measure), chosen)
    for rule in _RULES:
        found.items += rule(found.capability, chosen, root)
    for place in logs[1:]:          # what may differ from disk to disk
        for rule in (_directory, _file_system, _device):
            found.items += rule(probe(place, measure=False), chosen, root)
    found.items += _missing_logs(Places(root, chosen))
    return found


def _missing_logs(places: Places) -> Iterator[Verdict]:
    missing = places.missing() if places.several else []
    if missing and len(missing) < len(places.commitlogs):
        yield Verdict("finding", "log directories", f"not there: {', '.join(missing)}", "an open for writing refuses it; "
                      "readonly=True reads what the other directories have", "mount their disks, or make them if they are new")


def _directory(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    if not c.writable:
        yield Verdict("finding", "directory", f"{c.path} cannot be written ({os.strerror(c.write_error)})",
                      "no store can be made or opened for writing here",
                      "remount it read-write" if c.write_error == errno.EROFS else "give this user write permission, or "
                      "another path")
    elif not os.path.isdir(root):
        yield Verdict("note", "directory", f"{root} does not exist", f"the findings are about {c.path}, the nearest directory")


def _file_system(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    kind = c.file_system
    where = f"{kind} at {c.mount_point}" if c.mount_point else f"{kind} (by its number: mountinfo has no line for {c.path})"
    shown = f"{where}, {c.mount_options}" if c.mount_options else f"{where}, its options unknown"
    if kind in ("tmpfs", "ramfs") and o.origin("flush_backend") == "profile tmpfs":
        yield Verdict("note", "file system", where, "the next reboot deletes a store here, as profile tmpfs says")
    elif kind in ("tmpfs", "ramfs"):
        yield Verdict("finding", "file system", where, "the next reboot deletes a store here, and its files take "
                      "memory; a sync does nothing", "a directory on a disk; or profile tmpfs, if that is what you want")
    elif kind == "overlay":
        yield Verdict("finding", "file system", where, "the writable layer of a container: slow, and gone with "
                      "the container", "mount a volume, and put the store there")
    elif kind in _REMOTE:
        yield Verdict("finding", "file system", where, "durability and locking depend on the server; after a lost "
                      "connection the store takes no more puts", "a local disk or a block volume")
    elif kind == "btrfs" and not _no_copy_on_write(c):
        yield Verdict("finding", "file system", where, "it copies on write: reserved space is not safe, so a full disk can "
                      "show in the middle of a file, and each sync writes new blocks",
                      "chattr +C on the empty directory before the store is made, or another file system")
    else:
        level = "ok" if kind in (*_GOOD, "btrfs") else "note"
        yield Verdict(level, "file system", shown,
                      "a sync is durable here" if level == "ok" else "this store is not tested on this file system")
    options = c.mount_options.split(",")
    if any(option in options for option in _NO_BARRIER):
        yield Verdict("finding", "mount options", f"{c.mount_point} is mounted with barriers off", "a power cut can take "
                      "what a sync confirmed, unless the device's write cache has a battery", "mount it with barrier=1")
    if "data=journal" in options:
        yield Verdict("note", "mount options", f"{c.mount_point} is mounted with data=journal", "all data is written twice",
                      "mount it with data=ordered")


def _no_copy_on_write(c: Capability) -> bool:
    if "nodatacow" in c.mount_options.split(","):
        return True
    import fcntl
    get_flags, no_cow = 0x80086601, 0x00800000
    with suppress(OSError):
        fd = os.open(c.path, os.O_RDONLY)
        try:
            return bool(int.from_bytes(fcntl.ioctl(fd, get_flags, bytes(8))[:4], "little") & no_cow)
        finally:
            os.close(fd)
    return False


def _space(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    need = 2 * o.segment_size_bytes + (index_file_size(o.index_slots, o.index_entries_max) if o.index_enabled else 0)
    fact = f"{_size(c.free)} free of {_size(c.total)} ({c.used_pct:.0f} % used); a new store reserves {_size(need)}"
    if c.free < need:
        yield Verdict("finding", "space", fact, "the next commit-log file cannot be made: puts will be refused with DiskFull",
                      "make room, or a smaller segment_size_bytes")
    elif c.used_pct >= 90:
        yield Verdict("finding", "space", fact, "brokers refuse messages from 90 % on", "make room, or a larger disk")
    else:
        yield Verdict("ok", "space", fact, "enough to begin with")
    if c.fallocate_error:
        yield Verdict("finding", "reserving space", f"posix_fallocate fails: {os.strerror(c.fallocate_error)}",
                      "no commit-log file can be made",
                      "make room" if c.fallocate_error in DiskFull.codes else "another file system")
    elif c.writable and not c.fallocate_reserves:
        yield Verdict("finding", "reserving space", "posix_fallocate takes no blocks", "a full disk shows in the middle of a "
                      "file, as a failed write, and not before", "a file system that reserves, ext4 or xfs")


def _syncs(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    reserved, written = c.sync_reserved_s, c.sync_written_s
    if reserved is None or written is None:
        return
    commits = "" if c.commits_reserved is None else (f"; journal commits a sync: {c.commits_reserved:.1f} and "
                                                     f"{c.commits_written or 0:.1f}")
    fact = (f"a 4 KiB write and fdatasync takes {reserved * 1e6:,.0f} µs on reserved blocks, {written * 1e6:,.0f} µs on "
            f"written ones{commits}")
    dearer = reserved > 1.25 * written
    if dearer and o.flush_mode == "sync" and o.segment_prezero == "off":
        yield Verdict("finding", "syncs", fact, "each synchronous put pays for the journal", "segment_prezero='window'")
    elif dearer:
        yield Verdict("ok", "syncs", fact, "blocks should be written ahead under sync flush; segment_prezero does so by "
                      "default")
    else:
        yield Verdict("ok", "syncs", fact, "writing zeros ahead would gain little here")


def _unwritten(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    """What a bare loop without a store loses, too, with every kind of sync (tests/power/shutdown.py)."""
    if c.file_system in ("ext4", "xfs") and o.segment_prezero == "off":
        yield Verdict("note", "never written blocks", f"the log grows into blocks of {c.file_system} that were never written "
                      "(segment_prezero off)", "if the file system itself fails or is shut down, data that the last syncs "
                      "confirmed can be gone, with every flush back end; a power cut or a kill does not cause that",
                      "segment_prezero='window'")


def _uring(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    refusal = c.uring_refusal()
    wanted = "finding" if o.flush_backend == "io_uring" else "note"
    if refusal is not None and refusal[1] == "file":
        yield Verdict(wanted, "io_uring", f"not tried: no file can be made here ({os.strerror(refusal[0])})",
                      "the check of io_uring has no result", "a directory that this user may write to, or room in it")
    elif refusal is not None:
        code, step = refusal
        cause, cure = _why_no_ring(c, code)
        yield Verdict(wanted, "io_uring", f"{step} fails: {os.strerror(code)}{cause}",
                      "flush_backend io_uring cannot be used; auto takes fdatasync", cure)
    else:
        flags = ", ".join(c.uring.get("flags") or ()) or "none"
        yield Verdict("ok", "io_uring", f"works (set-up flags: {flags})", "flush_backend io_uring can be used"
                      + (", with write_path pool" if o.write_path == "mmap" else ""))
        if c.uring.get("buffers"):
            yield Verdict("note", "io_uring", f"registering memory fails: {os.strerror(c.uring['buffers'])} (memlock limit "
                          f"{_limit(c.memlock)})", "each write maps its pages again, which costs some CPU",
                          "raise the memlock limit (ulimit -l, LimitMEMLOCK=)")
    direct = c.direct_refusal()
    if refusal is None and direct:
        yield Verdict("note", "direct I/O", f"not here: {os.strerror(direct)}", "writes go through the page cache")
    elif refusal is None:
        yield Verdict("ok", "direct I/O", f"works, alignment {c.uring.get('align') or 'unknown'}", "writes can bypass the "
                      "page cache")
    yield from _second_opinion(c, refusal)


def _backend(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    """What flush_backend="auto" comes to, by the rule of flush.backend.choose_backend."""
    if o.flush_backend != "auto":
        yield Verdict("ok", "flush back end", f"{o.flush_backend} ({o.origin('flush_backend')})", "the option names it")
    elif o.write_path != "pool":
        yield Verdict("ok", "flush back end", "auto: fdatasync", f"write_path {o.write_path} leaves writing to the page cache")
    elif c.uring_refusal() is None and not c.direct_refusal() and o.uring_direct != "off":
        yield Verdict("ok", "flush back end", "auto: io_uring", "io_uring and direct I/O work here")
    else:
        yield Verdict("ok", "flush back end", "auto: fdatasync", "without direct I/O, io_uring gains nothing")


def _why_no_ring(c: Capability, code: int) -> tuple[str, str]:
    if code in (errno.EPERM, errno.EACCES) and c.io_uring_disabled:
        return f" (kernel.io_uring_disabled = {c.io_uring_disabled})", "sysctl kernel.io_uring_disabled=0"
    if code in (errno.EPERM, errno.ENOSYS) and c.seccomp == "filter":
        name = c.container or "a sandbox"
        cure = "allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile"
        return f" (a seccomp filter is active: {name})", cure
    if code == errno.ENOSYS:
        return f" (kernel {c.kernel})", "a kernel with io_uring, 5.6 or later"
    if code == errno.ENOMEM:
        return f" (memlock limit {_limit(c.memlock)})", "raise the memlock limit (ulimit -l, LimitMEMLOCK=)"
    return "", "flush_backend fdatasync"


def _second_opinion(c: Capability, refusal: tuple[int, str] | None) -> Iterator[Verdict]:
    if c.uring_opcodes_error:
        cure = ("pip install 'liburing<2026': the wheel was built for another CPU"
                if "SIGILL" in c.uring_opcodes_error else "nothing: the store itself does not use it")
        yield Verdict("note", "second opinion", f"the package liburing does not run here: {c.uring_opcodes_error}",
                      "io_uring has no second opinion", cure)
        return
    if c.uring_opcodes is None:
        yield Verdict("note", "second opinion", "the package liburing is not installed", "io_uring has no second opinion",
                      "pip install rmq_store[uring-check]")
        return
    needed = ("IORING_OP_WRITE", "IORING_OP_WRITE_FIXED", "IORING_OP_FSYNC")
    missing = [name for name in needed if not c.uring_opcodes.get(name)]
    agrees = (not missing) == (refusal is None or refusal[1] == "file")
    said = "everything that the store needs" if not missing else "without " + ", ".join(missing)
    yield Verdict("ok" if agrees else "finding", "second opinion", f"the package liburing sees {said}",
                  "it agrees" if agrees else "it disagrees with the test here", "" if agrees else "report this, with "
                  "--json")


def _memory(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    pool = o.pool_window_count * o.pool_window_size_bytes if o.write_path == "pool" else 0
    bound = "" if c.memory == c.memory_machine else f", bound by a cgroup (the machine has {_size(c.memory_machine)})"
    fact = f"{_size(c.memory)}{bound}; the pool takes {_size(pool)}"
    if pool * 4 > c.memory:
        yield Verdict("finding", "memory", fact, "the pool takes more than a quarter of it", "a smaller pool_window_count")
    else:
        yield Verdict("ok", "memory", fact, "enough")
    if o.pool_mlock and pool and c.memlock is not None and 0 <= c.memlock < 2 * pool and os.geteuid() != 0:
        level, consequence = ("finding", "opening is refused") if o.given("pool_mlock") else ("note", "the pool stays unlocked")
        yield Verdict(level, "memlock", f"the limit is {_limit(c.memlock)}, the pool needs {_size(2 * pool)} (it is mapped "
                      "twice)", consequence, "raise the limit (ulimit -l, LimitMEMLOCK=), or pool_mlock=False")
    swap = psutil.swap_memory().total
    if pool and swap and not o.pool_mlock:
        yield Verdict("note", "swap", f"{_size(swap)} of swap", "memory of the pool can be swapped out, and puts then wait "
                      "for the disk", "pool_mlock=True, or no swap")
    refusal = huge_pages() if o.pool_hugepages and pool else None
    if refusal is not None:
        yield Verdict("finding", "huge pages", refusal, "pool_hugepages has no effect", "echo advise into that file")


def _open_files(c: Capability, o: Options) -> Iterator[Verdict]:
    if c.files is None:
        return
    unlimited = c.files < 0
    queues = o.consumequeue_fd_max if unlimited else min(o.consumequeue_fd_max, c.files // 4)
    need = queues + LOG_DESCRIPTORS + _OTHER_FILES
    fact = (f"the limit is {'unlimited' if unlimited else format(c.files, ',')}, a store uses up to {need:,}: {queues:,} for "
            f"queues (consumequeue_fd_max, at most a quarter of the limit), {LOG_DESCRIPTORS} for files of the log that no "
            f"flush has reached, and {_OTHER_FILES} for its other files and the program")
    if unlimited or need <= c.files:
        yield Verdict("ok", "open files", fact, "enough; a broker also needs one for each connection")
    else:
        yield Verdict("finding", "open files", fact, "puts, reading and dispatch can fail with EMFILE",
                      "ulimit -n 65536 (LimitNOFILE=), or a smaller consumequeue_fd_max")


def _limits(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    yield from _open_files(c, o)
    logs, most = c.total // max(o.segment_size_bytes, 1), maps()
    need = logs + _OTHER_MAPS
    if most is not None:
        fact = (f"vm.max_map_count is {most:,}, a store uses up to {need:,}: one for each of the {logs:,} commit-log files of "
                f"{_size(o.segment_size_bytes)} that fit on this disk, and {_OTHER_MAPS:,} for the index and the program")
        if need > most:
            yield Verdict("finding", "mappings", fact, "a file without a map keeps a descriptor, and reading it fails with "
                          "ENOMEM", f"sysctl vm.max_map_count={2 * need}, or a larger segment_size_bytes")
        else:
            yield Verdict("ok", "mappings", fact, "enough")
    if c.device_limits:
        told = ", ".join(f"{name} {value:,}" for name, value in sorted(c.device_limits.items()))
        yield Verdict("note", "device limits", f"a cgroup limits this device: {told} a second", "bursts beyond it wait: the "
                      "pool fills, then puts wait", "profile cloud_block, or a higher io.max")


def _device(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    name = c.device.get("name")
    if not name:
        return
    cache, fua = c.device.get("write_cache"), c.device.get("fua")
    kind = "rotating" if c.device.get("rotational") == "1" else "not rotating"
    consequence = {"write back": "a sync flushes its cache", "write through": "it has no volatile cache: a sync costs little "
                   "more than the write"}.get(cache or "", "the device does not say what its cache is")
    if fua == "1":
        consequence += "; direct durable writes need no flush of their own"
    if kind == "rotating" and (c.container or str(name).startswith(("vd", "xvd"))):
        consequence += "; a virtual disk may report anything here: rmqstore advise measures it"
    yield Verdict("ok", "device", f"{name}, {kind}, write cache {cache or 'unknown'}, FUA "
                  f"{'yes' if fua == '1' else 'no'}", consequence)


def _store(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    if not os.path.isdir(os.path.join(root, "commitlog")) or not os.path.exists(os.path.join(root, "abort")):
        return
    if in_use(root):
        yield Verdict("note", "store", f"open in process {holder(os.path.join(root, 'lock')) or 'unknown'}",
                      "its numbers change during the check")
    else:
        yield Verdict("finding", "store", "the abort file is there", "the store was not closed cleanly: the next open recovers",
                      "open it once for writing")


def _compaction(c: Capability, o: Options, root: str) -> Iterator[Verdict]:
    queues = queues_on_disk(root)
    if not queues:
        return
    bad = list(compaction_findings(ControlFiles(IoTable()), root, o, records=False))
    for finding in bad:
        yield Verdict("finding", "compaction", f"{finding.path}: {finding.detail}",
                      "readers of the topic miss values that only the compaction log has, or the queue is compacted no more"
                      if finding.severity == "corrupt" else "the next compaction takes longer",
                      "run rmqstore verify, and restore the file from a backup or open the store once for writing")
    if not bad:
        yield Verdict("ok", "compaction", f"{len(queues)} queues have a compaction log, whose files agree with each other",
                      "the newest message of each key outlives the log; rmqstore stat shows how far each is")


def _size(value: int) -> str:
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << shift:
            return f"{value / (1 << shift):,.1f} {unit}"
    return f"{value} bytes"


def _limit(value: int | None) -> str:
    return "unknown" if value is None else "unlimited" if value < 0 else _size(value)


_Rule = Callable[[Capability, Options, str], Iterator[Verdict]]
_RULES: tuple[_Rule, ...] = (_directory, _file_system, _device, _space, _syncs, _unwritten, _uring, _backend, _memory, _limits,
                             _store, _compaction)
