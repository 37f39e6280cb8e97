"""The checkpoint as an open reads it (RocketMQ: StoreCheckpoint); while a store is open, _checkpoint.pyx writes it."""
import os

from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec._layout import (
    CHECKPOINT_AT_CONFIRM,
    CHECKPOINT_AT_FLUSHED,
    CHECKPOINT_AT_INDEX,
    CHECKPOINT_AT_LOGICS,
    CHECKPOINT_AT_MASTER_FLUSHED,
    CHECKPOINT_AT_PHYSICAL,
    CHECKPOINT_AT_SEAL,
    CHECKPOINT_FIELDS_SIZE,
    CHECKPOINT_SIZE,
)
from rmq_store.codec.layout import CHECKPOINT_SEAL, get64
from rmq_store.events import Event, emit

__all__ = ["Times", "is_foreign", "open_whole", "read", "take_back"]

# Times in ms: physical, logics, index; offsets: master flushed, confirm; ours: how far the log is flushed, 0: unknown.
Times = tuple[int, int, int, int, int, int]


def read(files: ControlFiles, path: str) -> Times:
    """What the checkpoint says; zeros where there is none. Raises OSError."""
    try:
        fd = files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return (0, 0, 0, 0, 0, 0)
    try:
        data = files.read(fd, 0, CHECKPOINT_FIELDS_SIZE)
    finally:
        files.close(fd)
    if len(data) < CHECKPOINT_AT_FLUSHED:       # where RocketMQ's fields end
        emit(Event.FOREIGN_FILE_SKIPPED, file=path, reason=f"it has {len(data)} bytes, a checkpoint has {CHECKPOINT_SIZE}")
        return (0, 0, 0, 0, 0, 0)
    physical, flushed = get64(data, CHECKPOINT_AT_PHYSICAL), get64(data, CHECKPOINT_AT_FLUSHED)
    sealed = flushed > 0 and _seal_fits(data)
    return (physical, get64(data, CHECKPOINT_AT_LOGICS), get64(data, CHECKPOINT_AT_INDEX),
            get64(data, CHECKPOINT_AT_MASTER_FLUSHED), get64(data, CHECKPOINT_AT_CONFIRM), flushed if sealed else 0)


def _seal_fits(data: bytes) -> bool:
    return (get64(data, CHECKPOINT_AT_SEAL)
            == get64(data, CHECKPOINT_AT_PHYSICAL) ^ get64(data, CHECKPOINT_AT_FLUSHED) ^ CHECKPOINT_SEAL)


def is_foreign(path: str) -> bool:
    """Whether RocketMQ has written the checkpoint since this library did. Raises OSError."""
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            data = file.read(CHECKPOINT_FIELDS_SIZE)
    except FileNotFoundError:
        return False
    return len(data) == CHECKPOINT_FIELDS_SIZE and get64(data, CHECKPOINT_AT_SEAL) != 0 and not _seal_fits(data)


def take_back(files: ControlFiles, path: str, times: Times) -> None:
    """Has the checkpoint on the device vouch for no more of queues, index and log than `times`. Raises OSError."""
    said = read(files, path)
    if said[1:3] == times[1:3] and said[5] == times[5]:
        return
    fd = files.open(path, os.O_RDWR)
    try:
        files.write(fd, CHECKPOINT_AT_LOGICS, b"".join(t.to_bytes(8, "big", signed=True) for t in times[1:3]))
        if said[5] != times[5]:
            files.write(fd, CHECKPOINT_AT_FLUSHED, bytes(CHECKPOINT_FIELDS_SIZE - CHECKPOINT_AT_FLUSHED))
        files.sync(fd)
    finally:
        files.close(fd)


def open_whole(files: ControlFiles, path: str) -> int:
    """Opens the checkpoint for writing, made whole where it is missing or short. Raises OSError."""
    times = read(files, path)
    if not os.path.exists(path) or os.stat(path).st_size != CHECKPOINT_SIZE:
        data = b"".join(t.to_bytes(8, "big", signed=True) for t in times[:5])
        files.write_new(os.path.dirname(path), "checkpoint", data.ljust(CHECKPOINT_SIZE, b"\0"))
    return files.open(path, os.O_RDWR)
