import datetime
from collections.abc import Iterable, Mapping
from typing import final

from rmq_store.access.core._core import StoreCore
from rmq_store.status import PutStatus

Body = bytes | bytearray | memoryview
Properties = Mapping[str, str] | bytes | None
Keys = str | Iterable[str] | None

@final
class PutResult:
    @property
    def offset(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def status(self) -> PutStatus: ...
    @property
    def msg_id(self) -> str: ...

@final
class Topic: ...

class StorePut(StoreCore):
    def put(self, topic: str, body: Body, *, queue_id: int = 0, tags: str | None = None, keys: Keys = None,
            properties: Properties = None, flag: int = 0, sys_flag: int = 0, born_timestamp: int | None = None,
            born_host: str | None = None, reconsume_times: int = 0, prepared_transaction_offset: int = 0,
            delay_level: int | None = None, deliver_at: datetime.datetime | int | None = None, delay: float | None = None,
            light_queues: Iterable[str] | None = None, wait: bool | None = None) -> PutResult: ...
    def _setup_put(self) -> None: ...
