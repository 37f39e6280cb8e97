from typing import final

from rmq_store.access.reader._get import StoreGet
from rmq_store.access.reader._message import Message

@final
class Place: ...

# Where the newest message of each key is: about 150 bytes and the key for each.
@final
class Places:
    live: int                                       # keys whose newest message has a body
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...                   # with those that were deleted in the last two rounds
    def keys(self) -> list[str]: ...
    def at(self, key: str) -> tuple[int, int] | None: ...           # (queue id, queue offset)
    def drop(self, key: str, queue_id: int, offset: int) -> None: ...       # unless it is somewhere else by now
    def drop_queue(self, queue_id: int, below: int) -> None: ...    # keys whose newest message is below this queue offset
    # A round is one look at all queues of the topic. Which of two messages of different queues is newer, their store times
    # say; so a key that was deleted is known for two rounds.
    def begin_round(self) -> None: ...
    def take_one(self, message: Message, queue_id: int) -> None: ...
    # Takes in messages of [begin, end) of a queue. Returns the queue offset to continue at, no greater than end; `begin` where
    # there is nothing for now. Takes in no key beyond keys_max + 1. Raises OSError, StoreClosed.
    def take(self, store: StoreGet, topic: str, queue_id: int, begin: int, end: int, keys_max: int) -> int: ...
