"""The checkpoint as an open reads it (upstream: StoreCheckpoint); while a store is open, _checkpoint.pyx writes it."""
import os

from rmq_store.base.io.files import ControlFiles
from rmq_store.events import Event, emit

__all__ = ["Times", "open_whole", "read", "take_back"]

SIZE = 4096
SEAL = 0x726d715f666c7573

# Times in ms: physical, logics, index; offsets: master flushed, confirm; ours: how far the log is flushed, 0: unknown.
Times = tuple[int, int, int, int, int, int]


def read(files: ControlFiles, path: str) -> Times:
    """What the checkpoint says; zeros where there is none. Raises OSError."""
    try:
        fd = files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return (0, 0, 0, 0, 0, 0)
    try:
        data = files.read(fd, 0, 56)
    finally:
        files.close(fd)
    if len(data) < 40:
        emit(Event.FOREIGN_FILE_SKIPPED, file=path, reason=f"it has {len(data)} bytes, a checkpoint has {SIZE}")
        return (0, 0, 0, 0, 0, 0)
    n = [int.from_bytes(data[i:i + 8], "big", signed=True) for i in range(0, 56, 8)]
    flushed = n[5] if n[5] > 0 and n[6] == n[0] ^ n[5] ^ SEAL else 0
    return n[0], n[1], n[2], n[3], n[4], flushed


def take_back(files: ControlFiles, path: str, times: Times) -> None:
    """Has the checkpoint on the device vouch for no more of queues, index and log than `times`. Raises OSError."""
    said = read(files, path)
    if said[1:3] == times[1:3] and said[5] == times[5]:
        return
    fd = files.open(path, os.O_RDWR)
    try:
        files.write(fd, 8, b"".join(t.to_bytes(8, "big", signed=True) for t in times[1:3]))
        if said[5] != times[5]:
            files.write(fd, 40, bytes(16))
        files.sync(fd)
    finally:
        files.close(fd)


def open_whole(files: ControlFiles, path: str) -> int:
    """Opens the checkpoint for writing, made whole where it is missing or short. Raises OSError."""
    times = read(files, path)
    if not os.path.exists(path) or os.stat(path).st_size != SIZE:
        data = b"".join(t.to_bytes(8, "big", signed=True) for t in times[:5])
        files.write_new(os.path.dirname(path), "checkpoint", data.ljust(SIZE, b"\0"))
    return files.open(path, os.O_RDWR)
