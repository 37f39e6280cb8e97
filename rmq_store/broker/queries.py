"""Messages by key and by id: codes 12 and 33 (RocketMQ: QueryMessageProcessor)."""
from rmq_store.access.reader._query import StoreQuery
from rmq_store.broker.codes import SUB, Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Refused, Request
from rmq_store.broker.resources import allowed, record_topic, require
from rmq_store.remoting.frame import FRAME_MAX, Frame

__all__ = ["Queries"]

BYTES_MAX = FRAME_MAX - (1 << 20)
TIME_MAX = (1 << 62) - 1


class Queries:
    def __init__(self, core: Core) -> None:
        self._core = core

    def processors(self) -> dict[int, Processor]:
        return {12: self._by_key, 33: self._by_offset}

    def _by_key(self, request: Request) -> Frame:
        store = self._core.store
        topic, key, count = request.text("topic"), request.text("key"), request.integer("maxNum")
        if request.flag("_UNIQUE_KEY_QUERY"):
            count = store.options.query_count_max
        begin, end = request.long("beginTimestamp"), request.long("endTimestamp")
        found = StoreQuery.query_key(       # a client's times are taken as they are
            store, topic, key, min(max(count, 1), store.options.query_batch_max), max(begin, 0),
            min(max(end, 0), TIME_MAX), exact=False)
        ext = {"indexLastUpdateTimestamp": str(found.index_last_timestamp),
               "indexLastUpdatePhyoffset": str(found.index_last_offset)}
        records: list[bytes] = []
        size = 0
        for message in found:       # by the hash of topic and key, which records of other topics may have
            if message.topic != topic or not allowed(request, record_topic(topic, message.properties), SUB):
                continue
            raw = message.raw
            size += len(raw)
            if size > BYTES_MAX:
                break
            records.append(raw)
        if not records:
            return request.answer(Code.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", ext)
        return request.answer(ext=ext, body=b"".join(records))

    def _by_offset(self, request: Request) -> Frame:
        offset = request.long("offset")
        message = self._core.store.message_at(offset) if offset >= 0 else None
        if message is None:
            raise Refused(Code.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        require(request, record_topic(message.topic, message.properties), SUB)
        return request.answer(body=message.raw)
