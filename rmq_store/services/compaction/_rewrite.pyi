from typing import Literal, final

from rmq_store.access.reader._get import StoreGet
from rmq_store.base.io._io import IoTable
from rmq_store.services.compaction._segments import Segments

@final
class PairWriter:
    start: int
    log_size: int
    entry_size: int
    count: int
    end: int
    path: str
    sync_failed: bool
    # Borrows the descriptors. ordered: also where the memory for a write ends, records are on the device before their entries.
    def __init__(self, io: IoTable, path: str, log_fd: int, entry_fd: int, start: int, log_size: int, entry_size: int,
                 count: int, end: int, ordered: bool) -> None: ...
    def filled(self) -> bool: ...
    def write(self) -> int: ...
    def close_pair(self) -> None: ...
    def sync(self) -> None: ...

def feed(store: StoreGet, writer: PairWriter, topic: str, queue_id: int, begin: int,
         limit: int) -> tuple[int, Literal["more", "end", "full"]]: ...

def agrees(store: StoreGet, segments: Segments, topic: str, queue_id: int, pair: int, index: int) -> bool: ...

@final
class Compaction:
    last_offset: int
    kept: int
    dropped: int
    kept_bytes: int
    dropped_bytes: int
    def __init__(self, segments: Segments, path: str, pairs: int, position: int, map_bytes: int) -> None: ...
    def map_some(self, size: int) -> bool: ...
    def copy_some(self, writer: PairWriter | None, size: int) -> Literal["more", "end", "full"]: ...
