"""Offsets of groups and of queues: codes 14, 15, and 29 to 32 (RocketMQ: ConsumerManageProcessor, AdminBrokerProcessor)."""
from rmq_store.broker.codes import Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.request import Refused, Request
from rmq_store.errors import CorruptionError
from rmq_store.remoting.frame import Frame

__all__ = ["Offsets"]


OFFSETS_MAX = 1_000_000         # that clients can make: about 220 bytes each


class Offsets:
    def __init__(self, core: Core) -> None:
        """Whatever commits, as a pull does, too, keeps to OFFSETS_MAX."""
        self._core = core
        try:
            core.store.offsets.most = OFFSETS_MAX
            core.store.offsets.keep_written(core.store.options.offsets_flush_interval_ms)
        except CorruptionError:         # which each request for an offset is told
            pass

    def processors(self) -> dict[int, Processor]:
        """Those that look into memory."""
        return {14: self._query, 15: self._update, 30: self._max, 31: self._min}

    def slow_processors(self) -> dict[int, Processor]:
        """Those that read records."""
        return {29: self._search, 32: self._earliest}

    def _query(self, request: Request) -> Frame:
        group, topic, queue_id = request.text("consumerGroup"), request.text("topic"), request.integer("queueId")
        store = self._core.store
        offset = store.offsets.query(group, topic, queue_id)
        zero = not self._core.modern or request.flag("setZeroIfNotFound", default=True)
        if offset < 0 and zero and self._may_begin_at_zero(topic, queue_id):
            offset = 0
        if offset < 0:
            why = ("V3_0_6_SNAPSHOT maybe this group consumer boot first" if zero else
                   "do not set to zero, maybe this group boot first")
            return request.answer(Code.QUERY_NOT_FOUND, f"Not found, {why}")
        return request.answer(ext={"offset": str(offset)})

    def _may_begin_at_zero(self, topic: str, queue_id: int) -> bool:
        """Whether a group without an offset begins with the first message of the queue: where that is still a recent one. In
        4.9 an empty queue counts, too."""
        store = self._core.store
        low, high = self._bounds(topic, queue_id)
        if low > 0:
            return False
        if high <= low:
            return not self._core.modern
        entry = store.raw_entry(topic, queue_id, 0)
        memory = _memory_bytes() * store.options.memory_ratio_pct // 100
        return entry is not None and store.max_log_offset - entry[0] <= memory

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        if not 0 <= queue_id < 1 << 31 or not topic:
            return 0, 0
        return max(self._core.store.min_offset(topic, queue_id), 0), self._core.store.max_offset(topic, queue_id)

    def _update(self, request: Request) -> Frame:
        topic, offset = request.text("topic"), request.long("commitOffset")
        known = self._core.topics.find_to_read(topic)
        if known is None:
            raise Refused(Code.TOPIC_NOT_EXIST, f"Topic {topic:.255} not exist!")
        group, queue_id = request.text("consumerGroup"), request.integer("queueId")
        if queue_id >= known.queues:        # RocketMQ would keep offsets of any number
            raise Refused(Code.SYSTEM_ERROR, f"queueId is {queue_id}: topic {topic} has {known.queues} queues")
        if self._core.groups.find(group) is None:
            raise Refused(Code.GROUP_NOT_EXIST, f"subscription group [{group:.255}] does not exist")
        try:
            self._core.store.offsets.commit(group, topic, queue_id, offset)
        except ValueError as error:
            raise Refused(Code.SYSTEM_ERROR, str(error)) from None
        return request.answer()

    def _max(self, request: Request) -> Frame:
        return request.answer(ext={"offset": str(self._bounds(request.text("topic"), request.integer("queueId"))[1])})

    def _min(self, request: Request) -> Frame:
        return request.answer(ext={"offset": str(self._bounds(request.text("topic"), request.integer("queueId"))[0])})

    def _search(self, request: Request) -> Frame:
        topic, queue_id, time_ms = request.text("topic"), request.integer("queueId"), request.long("timestamp")
        boundary = request.ext.get("boundaryType", "").lower()
        if boundary not in ("", "lower", "upper"):
            raise Refused(Code.SYSTEM_ERROR, f"boundaryType is {boundary:.40}: it is lower or upper")
        offset = 0
        if self._bounds(topic, queue_id)[1] > 0:
            offset = self._core.store._offset_by_time(topic, queue_id, max(time_ms, 0),
                                                      boundary or None)     # type: ignore[arg-type]
        return request.answer(ext={"offset": str(offset)})

    def _earliest(self, request: Request) -> Frame:
        topic, queue_id = request.text("topic"), request.integer("queueId")
        found = self._core.store.earliest_time(topic, queue_id) if self._bounds(topic, queue_id)[1] > 0 else -1
        return request.answer(ext={"timestamp": str(found)})


def _memory_bytes() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
