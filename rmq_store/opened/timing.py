"""Timer messages as methods of a MessageStore: recall, what waits, and the service that begins with the first of them."""
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmq_store.base.io._lock import StoreLock
from rmq_store.codec.timer import BROKER_NAME, RECALL_BODY, RECALL_TAG, recall_handle, recall_message, recall_of
from rmq_store.errors import DiskFull, WheelTimerMsgIllegal
from rmq_store.opened.hooking import StoreHooks
from rmq_store.services.timer.listing import PendingTimer, pending_timers
from rmq_store.services.timer.service import TimerService, load_check, mark

if TYPE_CHECKING:
    from rmq_store.access.writer._put import PutResult

__all__ = ["StoreTimers"]


class StoreTimers(StoreHooks):
    """The methods for timer messages. Any thread."""

    _options_lock: StoreLock
    _timer: TimerService | None = None
    _timer_serves: bool = True      # else a tool has the store open, and delivers nothing

    def timers(self, *, topic: str | None = None) -> Iterator[PendingTimer]:
        """Yields the timer messages that wait: (topic, queue_id, deliver_ms, offset, queue_offset, size, handle). topic: only
        the messages for this topic. Messages that a recall takes back are left out. Where another process delivers, those it
        delivered in the last second are still among them. Reads the files of the timer and each message. Raises DiskFull
        or OutOfResources where dispatch stands for want of it. Thread-safety: any. RocketMQ: TimerWheel, TimerLog."""
        self._check_open()
        if not self.readonly:
            self._wait_dispatched(None)     # what was put before waits in its queue by then
        service = self._timer
        if service is not None:
            read_ms, _, taken = service.wheel.position()
        else:
            check = load_check(self.path)
            read_ms, taken = check[0], max(check[2:4])      # a slave has read nothing, and knows how far its master is
        found = pending_timers(self, read_ms, taken)
        return found if topic is None else (timer for timer in found if timer.topic == topic)

    def recall(self, handle: str) -> "PutResult":
        """Takes a timer message back before it is delivered. Returns the PutResult of the message that does it.

        handle: str, of `recall_handle` or of a RocketMQ client. The store keeps a message that deletes the other one when both
        are due, so durability is that of a put. A handle of a message that is not there deletes nothing. Raises MessageIllegal
        for what is no handle, WheelTimerMsgIllegal if the message was due already, or is due by now, and what put raises.
        Thread-safety: any. RocketMQ: RecallMessageProcessor.
        """
        topic, properties = recall_message(handle)
        result = self._put_copy(topic, RECALL_BODY, tags=RECALL_TAG, properties=properties).result()
        self._recalled_in_time(handle)
        return result

    def _recalled_in_time(self, handle: str) -> None:
        """What a recall asks behind its put: no wheel has begun with the slot before the recall was there. Raises
        WheelTimerMsgIllegal."""
        self._check_recall((recall_of(handle).deliver_ms - 1) // self.options.timer_precision_ms
                           * self.options.timer_precision_ms)

    def _check_recall(self, slot_ms: int) -> None:
        service = self._timer
        passed = load_check(self.path)[0] if service is None else service.wheel.closing()
        if slot_ms < passed:
            raise WheelTimerMsgIllegal(f"the message to recall was due in the slot of {slot_ms} ms since 1970, and slots "
                                       f"before {passed} ms are delivered: it cannot be taken back any more")

    def recall_handle(self, offset: int, broker_name: str = BROKER_NAME) -> str:
        """Returns the handle for `recall` of a timer message that waits.

        offset: log offset of the message, as PutResult.offset has it. broker_name: str, for clients of RocketMQ; this store
        takes any. Raises WheelTimerMsgIllegal if no timer message with a UNIQ_KEY is there; put with deliver_at or delay
        makes one.
        Thread-safety: any. RocketMQ: SendMessageProcessor.attachRecallHandle.
        """
        message = self.message_at(offset)
        known = {} if message is None else message.properties
        if not {"REAL_TOPIC", "TIMER_OUT_MS", "UNIQ_KEY"} <= known.keys() or not known["TIMER_OUT_MS"].isdecimal():
            raise WheelTimerMsgIllegal(f"at log offset {offset} is no timer message with a UNIQ_KEY: give the offset of a put "
                                       "with deliver_at or delay that is not past")
        return recall_handle(known["REAL_TOPIC"], broker_name, int(known["TIMER_OUT_MS"]), known["UNIQ_KEY"])

    def _admit_timer(self, time_ms: int, recall: bool) -> None:
        """What a put asks before it stores a timer message: the service runs, the slot has room, and is not over before a
        recall."""
        try:
            self._begin_timer()
        except OSError as error:
            if error.errno not in DiskFull.codes or isinstance(error, DiskFull):
                raise
            raise DiskFull(error.errno, "making the files of timer messages of", error.filename or self.path) from error
        if recall:
            self._check_recall(time_ms)
        if self._timer is not None:
            self._timer.admit(time_ms)

    def _begin_timer(self) -> None:
        if not self._timer_serves:
            mark(self._files, self.path, self.options.timer_precision_ms)
        elif self._timer is None:
            with self._options_lock:
                if self._timer is None:
                    self._timer = TimerService(self, self._files)
