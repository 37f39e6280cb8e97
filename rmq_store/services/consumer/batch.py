"""What a consumer hands out: batches of one queue, and where it is in that queue. Thread-safety: the consumer's lock."""
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rmq_store.errors import ArgumentIllegal, StoreStateError
from rmq_store.services.consumer.counts import GroupCounts
from rmq_store.services.consumer.light_offsets import offset_in

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message

__all__ = ["Batch", "Queue"]


class Queue:
    """Where this consumer is in one queue."""

    __slots__ = ("again", "cold", "counts", "next", "out", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, next: int, counts: GroupCounts) -> None:
        self.topic, self.queue_id, self.counts = topic, queue_id, counts
        self.next, self.cold = next, False                  # offset to get next; the last get was of old messages
        self.out: dict[int, int] = {}                       # batches handed out: begin -> behind, ascending
        self.again: deque[tuple[int, int]] = deque()        # given back: to be handed out before `next`

    def done(self) -> int:
        """Everything below is acknowledged."""
        open_ones = [*self.out, *(begin for begin, _ in self.again)]
        return min(open_ones) if open_ones else self.next


class Holder(Protocol):
    """What a batch needs of its consumer."""

    def _settle(self, queue: Queue, begin: int, again: tuple[int, int] | None) -> None: ...
    def _flush_offsets(self) -> None: ...
    def _check_here(self) -> None: ...
    def retry(self, message: "Message", *, delay_level: int = 0) -> str: ...


class Batch(Sequence["Message"]):
    """Messages of one queue. Report their outcome with `ack` or `nack`, or `retry` single messages and then `ack`.

    As a context manager: a normal exit acknowledges the batch, an exception gives it back. Messages are views; if a program
    keeps many of them for long, their log files cannot be deleted.
    """

    def __init__(self, consumer: Holder, queue: Queue, begin: int, end: int, messages: list["Message"]) -> None:
        self._consumer, self._queue = consumer, queue
        self.begin, self.end = begin, end
        self.messages = messages
        self._settled = False
        self._retried: dict[tuple[Any, Any], object] = {}       # by place; threads may retry at once

    @property
    def topic(self) -> str:
        """str; %RETRY%group for retried messages (see origin_topic)."""
        return self._queue.topic

    @property
    def queue_id(self) -> int:
        """int."""
        return self._queue.queue_id

    def ack(self, *, wait: bool = False) -> None:
        """Marks all messages of the batch as done. A second call changes nothing more.

        wait: returns when the group's offset is on the device. Then no message of the batch comes again, whatever happens to
        the process or the machine, unless a batch before it in its queue is not settled yet. Threads that wait at the same time
        share one write. Without wait, what was acknowledged within the last offsets_flush_interval_ms may come again after a
        crash. Raises OSError from the write, StoreStateError where the consumer is closed: then call it again, or count on the
        messages coming again.
        """
        self._settle(len(self.messages))
        if wait:
            self._consumer._flush_offsets()

    def nack(self) -> None:
        """Gives the whole batch back: the next poll hands all its messages out again."""
        self._settle(0)

    def _settle(self, done: int) -> None:
        """So many from the beginning are done; the others are handed out again."""
        if not self._settled:
            begin = self.begin if done == 0 else self.end if done == len(self.messages) else self._place(self.messages[done])
            self._consumer._settle(self._queue, self.begin, again=(begin, self.end) if begin < self.end else None)
            self._settled = True        # not before: what failed can be said again

    def _place(self, message: "Message") -> int:
        """Its offset in this queue, which may be a light queue; the whole batch's begin where the record does not say it."""
        place = offset_in(message, self.topic)
        return self.begin if place is None or not self.begin <= place < self.end else place

    def retry(self, message: "Message", *, delay_level: int = 0) -> str:
        """Retries one failed message; see Consumer.retry. The batch still needs its ack.

        Raises ArgumentIllegal if the message is not of this batch, or if this call has retried it, and StoreStateError after
        ack() and nack(): each would make a second copy. After an error the message can be retried again.
        """
        place = getattr(message, "offset", None), getattr(message, "queue_offset", None)
        if place != (None, None):           # else Consumer.retry says that it is no message
            if all((own.offset, own.queue_offset) != place for own in self.messages):
                raise ArgumentIllegal(f"message is {message!r}, which is not of {self!r}: give a message of the batch")
            if self._settled:
                self._consumer._check_here()
                raise StoreStateError(f"{self!r} is acknowledged or given back: call retry before ack()")
            mine = object()
            if self._retried.setdefault(place, mine) is not mine:
                raise ArgumentIllegal(f"message is {message!r}, which this batch has retried: give each message once")
        try:
            return self._consumer.retry(message, delay_level=delay_level)
        except BaseException:
            self._retried.pop(place, None)
            raise

    def __reduce__(self) -> Any:
        raise TypeError("a Batch cannot be pickled or copied, only this process can say what became of it: send its messages")

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: Any) -> Any:
        return self.messages[index]

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.ack()
        else:
            self.nack()

    def __repr__(self) -> str:
        return f"Batch({self.topic!r}, queue_id={self.queue_id}, offsets {self.begin} to {self.end}, {len(self)} messages)"
