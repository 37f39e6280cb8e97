from collections.abc import Callable
from typing import Literal

from rmq_store.queues.consumequeue._owner import QueueTableOwner

def offset_by_time(
    owner: QueueTableOwner, topic: bytes, queue_id: int, timestamp: int, store_time: Callable[[int, int], int], *,
    physical_min: int = 0, rule: Literal["nearest", "lower", "upper"] = "lower",
) -> int: ...
