import datetime
from collections.abc import Iterable, Mapping
from typing import Any, final

from rmq_store.access.writer._future import PutFuture
from rmq_store.access.writer._put import Body, Keys, Properties, StorePut
from rmq_store.status import PutStatus

@final
class PutManyResult:
    @property
    def count(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def status(self) -> PutStatus: ...
    @property
    def offsets(self) -> list[int]: ...
    @property
    def queue_offsets(self) -> list[int]: ...
    @property
    def msg_ids(self) -> list[str]: ...
    def __len__(self) -> int: ...

class StorePutMany(StorePut):
    def put_many(self, topic: str, messages: Iterable[Body | Mapping[str, Any]], *, queue_id: int = 0, tags: str | None = None,
                 keys: Keys = None, properties: Properties = None, flag: int = 0, sys_flag: int = 0,
                 born_timestamp: int | None = None, born_host: str | None = None,
                 deliver_at: datetime.datetime | int | None = None, delay: float | None = None,
                 light_queues: Iterable[str] | None = None, wait: bool | None = None) -> PutManyResult: ...
    def put_batch(self, topic: str, batch: Body, *, queue_id: int = 0, properties: Properties = None, sys_flag: int = 0,
                  born_timestamp: int | None = None, born_host: str | None = None, reconsume_times: int = 0,
                  wait: bool | None = None) -> PutManyResult: ...
    def put_async(self, topic: str, body: Body, *, queue_id: int = 0, tags: str | None = None, keys: Keys = None,
                  properties: Properties = None, flag: int = 0, sys_flag: int = 0, born_timestamp: int | None = None,
                  born_host: str | None = None, reconsume_times: int = 0, prepared_transaction_offset: int = 0,
                  delay_level: int | None = None, deliver_at: datetime.datetime | int | None = None,
                  delay: float | None = None, light_queues: Iterable[str] | None = None,
                  wait: bool | None = None) -> PutFuture: ...
    def _put_mixed(self, topic: str, messages: list[Any], queue_id: int, tags: str | None, keys: Keys,
                   properties: Properties, flag: int, sys_flag: int, born_timestamp: int | None, born_host: str | None,
                   light_queues: Iterable[str] | None, wait: bool | None) -> PutManyResult: ...
    def _put_copy(self, topic: str, body: Body, *, queue_id: int = 0, tags: str | None = None, keys: Keys = None,
                  properties: Properties = None, flag: int = 0, sys_flag: int = 0, born_timestamp: int | None = None,
                  born_host: str | None = None, reconsume_times: int = 0, prepared_transaction_offset: int = 0,
                  delay_level: int | None = None, deliver_at: datetime.datetime | int | None = None,
                  delay: float | None = None, light_queues: Iterable[str] | None = None,
                  wait: bool | None = None) -> PutFuture: ...
    def _light_room(self, topic: str, properties: bytes) -> int: ...
