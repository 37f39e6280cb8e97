"""`lock` and `abort`: who has the store, and whether the last one left in order (RocketMQ: DefaultMessageStore.start/shutdown).

`lock` is held by an open-file-description lock on its first byte: it excludes a Java broker, which locks the same byte, both
ways, and a second opener in this process too; the kernel frees it with its holder. Our process id stands behind the four bytes
`lock`. A `lock` file that somebody removed would let a second opener in, and so would a second root with the same
commitlog_path: the directories themselves are locked as well (flock, where the file system knows it for directories).
`abort` exists while a store is open: found at load, the last exit was not clean.
"""
import fcntl
import os
import struct
from contextlib import suppress

from rmq_store.base.io._dirs import forget
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.errors import StoreLocked
from rmq_store.log.recovery.salvage import refuse_undoing

__all__ = ["acquire", "clear_abort", "holder", "in_use", "release", "set_abort"]

_WORD = b"lock"
_FLOCK = struct.Struct("hhqqi4x")       # struct flock: type, whence, start, length, pid

# What this process holds: descriptor of a lock file -> those of the directories locked with it.
_held: dict[int, list[int]] = {}


def acquire(files: ControlFiles, root: str, *directories: str, undoing: bool = False) -> int:
    """Locks the store in `root`, and `directories` of it that may lie elsewhere; returns the lock's descriptor. Raises
    StoreLocked with the holder's pid where it can be told, and StoreRefusesToLoad while an undo of a repair is not done.
    undoing: for that undo."""
    path = os.path.join(root, "lock")
    fd = files.open(path, os.O_RDWR | os.O_CREAT)
    try:
        _held[fd] = []
        if not files.lock(fd):
            raise StoreLocked(root, holder(path, fd))
        for directory in (root, *directories):
            _lock_directory(files, fd, directory)
        if not undoing:
            refuse_undoing(root)
        files.truncate(fd, 0)
        files.write(fd, 0, _WORD + str(os.getpid()).encode())
    except BaseException:
        _close(files, fd)
        raise
    return fd


def _lock_directory(files: ControlFiles, fd: int, directory: str) -> None:
    guard = files.open_dir(directory)
    try:
        free = files.lock(guard)
    except OSError:             # NFS and others have no such lock
        files.close(guard)
        return
    _held[fd].append(guard)
    if not free:
        raise StoreLocked(directory, holder(directory))


def _close(files: ControlFiles, fd: int) -> None:
    """Whatever fails, every descriptor is closed. Unlocked first: a process that is being started may still have copies."""
    problem: OSError | None = None
    for each in (*_held.pop(fd), fd):
        for step in (files.unlock, files.close):
            try:
                step(each)
            except OSError as error:
                problem = problem or error
    if problem is not None:
        raise problem


def release(files: ControlFiles, fd: int) -> None:
    """Gives the lock up; what stays in the file is what Java leaves there. What was watched is watched no more."""
    forget(files.table)
    try:
        files.truncate(fd, len(_WORD))
    finally:
        _close(files, fd)


def in_use(root: str) -> bool:
    """Whether somebody has the store in `root` open for writing, a Java broker or a process of ours. Takes nothing, changes
    nothing: the kernel is asked."""
    try:
        fd = open_regular(os.path.join(root, "lock"))
    except OSError:
        return False
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)
    except OSError:             # a file system without such locks: nobody could lock it
        return False
    finally:
        os.close(fd)


def holder(path: str, but: int = -1) -> int | None:
    """The process that holds the lock: from the kernel's table (Java; directories), else from the file (ours), None where
    neither tells. but: a descriptor of this process that does not hold it."""
    try:
        about = os.stat(path)
        inode = about.st_ino
        with open("/proc/locks", encoding="ascii", errors="replace") as table:
            for line in table:
                fields = line.split()
                if (len(fields) > 5 and fields[1] in ("POSIX", "FLOCK") and fields[5].rpartition(":")[2] == str(inode)
                        and int(fields[4]) > 0):
                    return int(fields[4])
        with open(path, "rb", opener=open_regular) as f:
            text = f.read(32)[len(_WORD):]
        pid = int(text)
        if pid < 1:
            return None         # to kill() a group of processes
        if pid == os.getpid() and not any(fd != but and os.path.samestat(os.fstat(fd), about) for fd in list(_held)):
            return None         # of another container, where another process has our number: mostly 1
        with suppress(PermissionError):     # another user's is there, too
            os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return None
    return pid


def set_abort(files: ControlFiles, root: str, compat: str) -> None:
    """Marks the store as open. 5.x writes the process id, 4.9 nothing."""
    path = os.path.join(root, "abort")
    fd = files.open(path, os.O_RDWR | os.O_CREAT)
    try:
        files.truncate(fd, 0)
        if compat == "5.x":
            files.write(fd, 0, str(os.getpid()).encode())
        files.sync(fd)
    finally:
        files.close(fd)
    files.sync_dir(root)


def clear_abort(files: ControlFiles, root: str) -> None:
    """The store was closed in order."""
    files.unlink(os.path.join(root, "abort"))
    files.sync_dir(root)


def _in_child() -> None:
    """After fork: the locks must stay the parent's alone, also while a store is still opening, so the child lets its copies of
    the descriptors go, without unlocking."""
    for fd, guards in _held.items():
        for each in (*guards, fd):
            os.close(each)
    _held.clear()


os.register_at_fork(after_in_child=_in_child)
