from rmq_store.access.reader._look import StoreLook
from rmq_store.access.reader._message import Message
from rmq_store.base.io._io import IoTable

class Segments:
    pair_count: int
    log_size: int
    entry_size: int
    def __init__(self, io: IoTable, log_size: int, entry_size: int, guarded: bool) -> None: ...
    # Opens the pair that begins at `start`, which is beyond those before. Raises OSError, CorruptionError.
    def add(self, log_dir: str, entry_dir: str, start: int) -> None: ...
    def grown(self, count: int) -> None: ...                        # entries of the last pair, which are all in the files
    def look(self) -> None: ...                                     # another process appends to the last pair
    def pair(self, i: int) -> tuple[int, int, int, bool]: ...       # start, entries, bytes of records, whether it is closed
    def bounds(self) -> tuple[int, int]: ...                        # first and last queue offset; -1, -1: no entry
    def last_of(self, i: int) -> int: ...                           # last queue offset of a pair; -1
    def place(self, offset: int) -> tuple[int, int] | None: ...     # pair and index of the first entry at or beyond it
    def rank(self, offset: int) -> int: ...                         # how many entries are before it
    def entry(self, rank: int) -> tuple[int, int]: ...              # queue offset and store time. Raises IndexError
    def total(self) -> int: ...
    # Messages of queue offsets [offset, limit), up to so many of so many bytes, but one if there is one; the queue offset to
    # continue at, `limit` where there are no more; and how many entries led to no record.
    def read(self, store: StoreLook, topic: str, queue_id: int, offset: int, limit: int, count_max: int,
             bytes_max: int) -> tuple[list[Message], int, int]: ...
    def raw(self, pair: int, index: int) -> bytes | None: ...       # a copy of a record; None: its entry leads to none
    # Entries without a good record: (start of the pair, queue offset).
    def check(self, topic: str, queue_id: int) -> list[tuple[int, int]]: ...
    # Messages with this key in KEYS or as UNIQ_KEY, below queue offset `limit`, stored in [begin_time, end_time]: newest first.
    def search(self, store: StoreLook, topic: str, queue_id: int, key: str, begin_time: int, end_time: int, limit: int,
               count_max: int) -> list[Message]: ...
    # The first `slots` entries of a pair, made of its records, and its end marker if that is the last of them; None where the
    # records are not whole or the good entries of the pair disagree with them.
    def rebuilt(self, i: int, slots: int, topic: str, queue_id: int) -> bytes | None: ...
