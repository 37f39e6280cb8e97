"""`lock` and `abort`: who has the store, and whether the last one left in order (upstream: DefaultMessageStore.start/shutdown).

`lock` is held by an open-file-description lock on its first byte: it excludes a Java broker, which locks the same byte, both
ways, and a second opener in this process too; the kernel frees it with its holder. Our process id stands behind the four bytes
`lock`. `abort` exists while a store is open: found at load, the last exit was not clean.
"""
import os

from rmq_store.errors import StoreLocked
from rmq_store.io.files import ControlFiles

__all__ = ["acquire", "clear_abort", "holder", "release", "set_abort"]

_WORD = b"lock"


def acquire(files: ControlFiles, root: str) -> int:
    """Takes the lock; returns its descriptor. Raises StoreLocked with the holder's pid where it can be told."""
    path = os.path.join(root, "lock")
    fd = files.open(path, os.O_RDWR | os.O_CREAT)
    try:
        if not files.lock(fd):
            raise StoreLocked(root, holder(path))
        files.truncate(fd, 0)
        files.write(fd, 0, _WORD + str(os.getpid()).encode())
    except BaseException:
        files.close(fd)
        raise
    return fd


def release(files: ControlFiles, fd: int) -> None:
    """Gives the lock up; what stays in the file is what Java leaves there."""
    try:
        files.truncate(fd, len(_WORD))
    finally:
        files.close(fd)


def holder(path: str) -> int | None:
    """The process that holds the lock: from the kernel's table (Java), else from the file (ours), None where neither tells."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii", errors="replace") as table:
            for line in table:
                fields = line.split()
                if len(fields) > 5 and fields[1] == "POSIX" and fields[5].rpartition(":")[2] == str(inode):
                    return int(fields[4])
        with open(path, "rb") as f:
            text = f.read(32)[len(_WORD):]
        pid = int(text)
        os.kill(pid, 0)
    except PermissionError:
        return pid
    except (OSError, ValueError):
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
