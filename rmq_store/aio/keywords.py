"""The keywords of puts and reads that AsyncMessageStore hands on to MessageStore, for type checkers and editors."""
import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from rmq_store.access.writer._put import Keys, Properties

__all__ = ["BatchKeywords", "HalfKeywords", "PutKeywords", "PutManyKeywords", "ScanKeywords"]


class _Common(TypedDict, total=False):
    queue_id: int
    properties: "Properties"
    sys_flag: int
    born_timestamp: int | None
    born_host: str | None


class BatchKeywords(_Common, total=False):
    """Of put_batch and put_inner_batch."""

    reconsume_times: int


class PutManyKeywords(_Common, total=False):
    """Of put_many."""

    tags: str | None
    keys: "Keys"
    flag: int
    deliver_at: datetime.datetime | int | None
    delay: float | None
    light_queues: Iterable[str] | None


class PutKeywords(PutManyKeywords, total=False):
    """Of put and put_async."""

    reconsume_times: int
    prepared_transaction_offset: int
    delay_level: int | None
    wait: bool | None


class HalfKeywords(_Common, total=False):
    """Of prepare and transaction."""

    tags: str | None
    keys: "Keys"
    flag: int
    reconsume_times: int
    wait: bool | None


class ScanKeywords(TypedDict, total=False):
    """Of scan."""

    begin_time: int | datetime.datetime | None
    end_time: int | datetime.datetime | None
    begin: int | None
