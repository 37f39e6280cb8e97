"""Which timer messages wait: read from the files, so beside whoever delivers them as well. Nothing is written."""
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io.files import open_regular
from rmq_store.codec.timer import BROKER_NAME, TIMER_TOPIC, delete_key, recall_handle
from rmq_store.fields import NamedTuple
from rmq_store.services.timer.service import log_starts

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message

__all__ = ["PendingTimer", "pending_timers"]

UNIT = struct.Struct(">iqiqiqiiq")
TAIL_SIZE = 16
_PIECE = UNIT.size * 20_000


class PendingTimer(NamedTuple):
    """A timer message that waits."""

    topic: str              # where it is delivered
    queue_id: int
    deliver_ms: int         # ms since 1970: when its slot is delivered
    offset: int             # log offset of the waiting message
    queue_offset: int       # in rmq_sys_wheel_timer
    size: int               # bytes of its record
    handle: str | None      # for recall; None where it has no UNIQ_KEY


def pending_timers(store: StoreWait, read_ms: int, taken: int) -> Iterator[PendingTimer]:
    """Those due at read_ms or later, in the order of the timer log; then those that are in its queue only: behind `taken`, a
    queue offset, also those whose time is over."""
    recalled: set[tuple[str, str]] = set()
    for message, is_recall in _waiting(store, read_ms, taken):
        if is_recall:
            recalled.add((message.properties["TIMER_OUT_MS"], message.properties["TIMER_DEL_UNIQKEY"]))
    precision = store.options.timer_precision_ms
    for message, is_recall in _waiting(store, read_ms, taken):
        known = message.properties
        topic, out, unique = known["REAL_TOPIC"], known["TIMER_OUT_MS"], known.get("UNIQ_KEY")
        if is_recall or (unique is not None and (out, delete_key(topic, unique)) in recalled):
            continue
        handle = None if unique is None else recall_handle(topic, BROKER_NAME, int(out), unique)
        yield PendingTimer(topic, int(known["REAL_QID"]), int(out) + precision, message.offset, message.queue_offset,
                           message.size, handle)


def _waiting(store: StoreWait, read_ms: int, taken: int) -> Iterator[tuple["Message", bool]]:
    """Each message that waits, and whether it is a recall."""
    last = -1
    for due, offset in _units(os.path.join(store.path, "timerlog")):
        message = store.message_at(offset) if due >= read_ms else None
        if message is not None and (found := _of(message)) is not None:
            yield message, found
        last = max(last, offset)
    message = store.message_at(last) if last >= 0 else None
    after = 0 if message is None else message.queue_offset + 1
    bounds = store._bounds(TIMER_TOPIC, 0)
    while bounds is not None and after < bounds[1]:
        after = max(after, bounds[0])
        result = store.get(TIMER_TOPIC, 0, after)
        for message in result:
            found = _of(message)
            if found is not None and (message.queue_offset >= taken or int(message.properties["TIMER_OUT_MS"]) >= read_ms):
                yield message, found
        if result.next_offset <= after:
            break
        after = result.next_offset


def _of(message: "Message") -> bool | None:
    """Whether it is a recall; None where it is no timer message."""
    known = message.properties
    if message.topic != TIMER_TOPIC or not known.get("TIMER_OUT_MS", "").isdecimal() or "REAL_TOPIC" not in known:
        return None
    return "TIMER_DEL_UNIQKEY" in known if known.get("REAL_QID", "").isdecimal() else None


def _units(directory: str) -> Iterator[tuple[int, int]]:
    """(time of its slot, log offset of its message) of each unit, to the first that is none."""
    for start in log_starts(directory):
        try:
            fd = open_regular(os.path.join(directory, f"{start:020d}"))
        except FileNotFoundError:
            continue            # deleted by whoever delivers
        try:
            room = (os.fstat(fd).st_size - TAIL_SIZE) // UNIT.size * UNIT.size
            for at in range(0, room, _PIECE):
                piece = os.pread(fd, min(_PIECE, room - at), at)
                whole = piece[:len(piece) // UNIT.size * UNIT.size]
                for size, _, _, written, delay, offset, _, _, _ in UNIT.iter_unpack(whole):
                    if size != UNIT.size:
                        return
                    yield written + delay, offset
        finally:
            os.close(fd)
