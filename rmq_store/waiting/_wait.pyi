from weakref import WeakSet

from rmq_store.reader._get import GetResult
from rmq_store.reader._query import StoreQuery
from rmq_store.waiting._arrivals import Arrivals

def wait_ns(seconds: float | None, name: str = "timeout") -> int: ...

class StoreWait(StoreQuery):
    _hubs: WeakSet[Arrivals]
    def wait_for_message(self, topic: str, queue_id: int, offset: int, timeout: float | None = None) -> bool: ...
    def _get_waiting(self, topic: str, queue_id: int, offset: int, max_count: int, tags: str | None, max_bytes: int | None,
                     wait: float | bool) -> GetResult: ...
    def _wake_waiters(self) -> None: ...
