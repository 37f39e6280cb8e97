from collections.abc import Iterable, Mapping
from typing import Any

from rmq_store.access.writer._put import Body, Properties
from rmq_store.access.writer._put_many import PutManyResult, StorePutMany

class StorePutInner(StorePutMany):
    batch_topics: frozenset[str]
    def put_inner_batch(self, topic: str, batch: Body | Iterable[Body | Mapping[str, Any]], *, queue_id: int = 0,
                        properties: Properties = None, sys_flag: int = 0, born_timestamp: int | None = None,
                        born_host: str | None = None, reconsume_times: int = 0,
                        wait: bool | None = None) -> PutManyResult: ...
    def _take_batches(self, directory: str, file_size: int, topics: Iterable[str]) -> None: ...
    def _batch_topic(self, topic: str, batched: bool) -> None: ...
