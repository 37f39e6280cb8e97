"""Sizes that nobody gave, cut to what the machine has: the pool to memory, a new store's files to the disk.

The opening thread. Defaults are RocketMQ's; they are cut only where they would take more than a fair share, so that a store
opens in a small container and on a small disk.
"""
import os
from typing import Any

from rmq_store.base.machine.limits import free_bytes, memory_limit
from rmq_store.config.load import Options
from rmq_store.config.values import index_file_size
from rmq_store.events import Event, emit

__all__ = ["DISK_SHARE", "INDEX_SHARE", "MEMORY_SHARE", "cut_index", "fit", "say_large"]

MEMORY_SHARE = 8            # the pool takes at most this part of memory: 1/8
DISK_SHARE = 8              # two commit-log files (the one written and the next) take at most this part of the free space
INDEX_SHARE = 16            # and an index file this part
_SEGMENT_LEAST = 16 << 20
_SLOTS_LEAST = 1000


def fit(options: Options, commitlog: str, index: str) -> Options:
    """`options` with sizes cut where nobody gave them, or only a profile did; their origin is then `memory` or `disk`.

    commitlog, index: the directories. Files that are there keep their size.
    """
    if options.readonly:
        return options
    if options.write_path == "pool" and not options.given("pool_window_count"):
        count = _windows(options, memory_limit())
        if count < options.pool_window_count:
            options = options.inferred({"pool_window_count": count}, "memory")
    if not options.given("segment_size_bytes") and not _files(commitlog):
        size = _segment(options, free_bytes(commitlog))
        if size < options.segment_size_bytes:
            options = options.inferred({"segment_size_bytes": size}, "disk")
    if options.index_enabled and not _files(index) and not (options.given("index_slots") or options.given("index_entries_max")):
        cut = _index(options, free_bytes(index))
        if cut:
            options = options.inferred(cut, "disk")
    return options


def say_large(options: Options, root: str) -> None:
    """Of a store that was just made: what it takes from the start, where that is RocketMQ's size and nobody chose it."""
    if any(options.origin(name) != "default" for name in ("segment_size_bytes", "index_slots", "index_entries_max")):
        return
    index = index_file_size(options.index_slots, options.index_entries_max) if options.index_enabled else 0
    emit(Event.SIZES_LARGE, path=root, size=f"{2 * options.segment_size_bytes >> 20:,} MiB", index=f"{index >> 20:,} MiB")


def _windows(options: Options, memory: int) -> int:
    window = max(min(options.pool_window_size_bytes, options.segment_size_bytes), 1)
    return int(min(options.pool_window_count, max(memory // MEMORY_SHARE // window, 2)))


def _segment(options: Options, free: int) -> int:
    least = max(_SEGMENT_LEAST, 4 * options.message_size_max_bytes)
    size = int(options.segment_size_bytes)
    while 2 * size * DISK_SHARE > free and size // 2 >= least:
        size //= 2
    return size


def _index(options: Options, free: int) -> dict[str, Any]:
    slots, entries = _halved(options, free // INDEX_SHARE)
    return {} if slots == options.index_slots else {"index_slots": slots, "index_entries_max": entries}


def _halved(options: Options, size: int) -> tuple[int, int]:
    slots, entries = options.index_slots, options.index_entries_max
    while index_file_size(slots, entries) > size and slots // 2 >= _SLOTS_LEAST:
        slots, entries = slots // 2, max(entries // 2, 2)
    return slots, entries


def cut_index(options: Options, size: int) -> tuple[int, int] | None:
    """Slots and entries of an index file that was cut to its disk, by its size alone: what a power cut may leave of it."""
    slots, entries = _halved(options, size)
    return (slots, entries) if index_file_size(slots, entries) == size else None


def _files(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(e.name.isdecimal() for e in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
