"""What stands in place of damaged bytes of the log, so that the records behind them can be reached again.

Recovery ends at the first bad record and cuts all that follows. Repair puts whole records there instead. A queue must keep its
offsets: each message of which only the gap in its queue is left gets a tombstone at its queue offset, with the property DAMAGED
and a body of zeros. What is left over becomes a record marked as rolled back, which no queue has. Pure functions over bytes;
the damaged bytes themselves are kept aside by the caller.
"""
from bisect import bisect_left
from collections.abc import Callable, Iterator

from rmq_store.codec._codec import Blank, DecodedRecord, decode_record, encode_blank, encode_record
from rmq_store.codec._layout import (
    BLANK_SIZE,
    FLAG_INNER_BATCH,
    RECORD_AT_SIZE,
    RECORD_FIXED_SIZE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rmq_store.codec.batch import encode_batch
from rmq_store.codec.layout import get32
from rmq_store.errors import CorruptionError
from rmq_store.fields import NamedTuple

__all__ = ["DAMAGED", "Lost", "Misfit", "Stretch", "fill", "find_lost", "records"]

DAMAGED = "DAMAGED"             # property of a tombstone: where the damage began; also the topic of what is only filled
COUNT_MAX = 32767               # messages of an inner batch: RocketMQ reads INNER_NUM as a short
LIGHT_NAMES, LIGHT_OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
HEADER_MAX = 200
CHUNK = 4 << 20

Read = Callable[[int, int], bytes]      # (log offset, size) -> bytes, fewer at the end of a file


class Lost(NamedTuple):
    """A message of which only its place in a queue is known. messages: of a batch queue, how many there are from there on, for
    which one record stands; 0: of another queue. lights: its light queues, with its queue offsets there."""

    topic: str
    queue_id: int
    queue_offset: int
    messages: int = 0
    lights: tuple[tuple[str, int], ...] = ()


class Misfit(NamedTuple):
    """A record whose queue offset does not follow the one before it in its queue, with no damage between them."""

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    before: int             # the queue offset of the one before


class Stretch(NamedTuple):
    """Damaged bytes [begin, end) of one file; `to_end`: nothing readable follows in this file."""

    begin: int
    end: int
    to_end: bool


class LightGap(NamedTuple):
    """Offsets [begin, end) of a light queue that no record says; they lay in these stretches."""

    name: str
    begin: int
    end: int
    stretches: list[Stretch]


def records(read: Read, begin: int, end: int) -> Iterator[tuple[int, DecodedRecord]]:
    """(offset, record) from `begin` on to `end` or to the file's end-of-file record. Raises CorruptionError."""
    at, chunk, chunk_at = begin, b"", begin
    while at + BLANK_SIZE <= end:
        for want in (HEADER_MAX, 0):
            if want == 0:
                want = max(get32(chunk, at - chunk_at + RECORD_AT_SIZE), BLANK_SIZE)
            if at + min(want, end - at) > chunk_at + len(chunk):
                chunk, chunk_at = read(at, min(max(want, CHUNK), end - at)), at
        raw = memoryview(chunk)[at - chunk_at:]
        record = decode_record(raw)
        if isinstance(record, Blank):
            return
        yield at, record
        at += record.size


def find_lost(read: Read, file_ends: list[tuple[int, int]], stretches: list[Stretch],
              told: list[tuple[int, Lost]] | None = None) -> tuple[dict[Stretch, list[Lost]], list[Misfit]]:
    """Which messages lay in each stretch: those to which entries of queues lead, and the offsets that queues lack between the
    records before and behind it. And the first records of queues whose offsets do not fit otherwise: some header must have
    rotted, and nothing says which.

    file_ends: (begin, end) of each file, ascending. told: log offset and message of each entry that leads to no record, by log
    offset. A record that is readable, but for its checksum, tells its own place.
    """
    told = told or []
    lost: dict[Stretch, list[Lost]] = {s: [] for s in stretches}
    misfits: dict[tuple[str, int], Misfit] = {}
    seen: dict[tuple[str, int], tuple[int, int]] = {}       # queue -> queue offset behind the last record, and its log offset
    light_gaps: list[LightGap] = []
    by_begin = {s.begin: s for s in stretches}
    for first, last in file_ends:
        at = first
        while at < last:
            inside = by_begin.get(at)
            if inside is not None:
                for _, message in told[bisect_left(told, (at,)):bisect_left(told, (inside.end,))]:
                    _told(lost, seen, inside, message)
                if get32(read(at, RECORD_AT_SIZE + 4), RECORD_AT_SIZE) == inside.end - at:
                    _still_readable(lost, seen, inside, read(at, inside.end - at))
                at = inside.end
                continue
            stop = min((s.begin for s in stretches if at < s.begin < last), default=last)
            try:
                for offset, record in records(read, at, stop):
                    _gap(lost, misfits, seen, stretches, offset, record)
                    _light_gap(light_gaps, seen, stretches, offset, record)
            except CorruptionError:
                pass            # the end of the data
            at = stop
    for gap in light_gaps:
        _attach(lost, gap)
    return lost, list(misfits.values())


def _told(lost: dict[Stretch, list[Lost]], seen: dict[tuple[str, int], tuple[int, int]], stretch: Stretch,
          message: Lost) -> None:
    """What an entry of a queue says of a message that is lost, where it fits what stands in front of the stretch."""
    queue = message.topic, message.queue_id
    expected = seen.get(queue, (message.queue_offset, 0))[0]
    lacking = _lost_between(queue, expected, message.queue_offset, message.messages > 0)
    if message.queue_offset >= expected and len(lacking) * BLANK_SIZE < stretch.end - stretch.begin:
        lost[stretch] += [*lacking, message]
        seen[queue] = message.queue_offset + (message.messages or 1), stretch.begin
        seen |= {(name, 0): (n + 1, stretch.begin) for name, n in message.lights}


def _still_readable(lost: dict[Stretch, list[Lost]], seen: dict[tuple[str, int], tuple[int, int]], stretch: Stretch,
                    data: bytes) -> None:
    """A record of which only the checksum is wrong may be the last one of its queue: it still says where it belongs."""
    try:
        record = decode_record(data)
    except CorruptionError:
        return
    if isinstance(record, Blank) or record.size != len(data) or record.physical_offset != stretch.begin:
        return
    queue = record.topic, record.queue_id
    if queue in seen and seen[queue][0] == record.queue_offset:
        count = messages_of(record)
        lost[stretch].append(Lost(*queue, record.queue_offset, count, lights := lights_of(record)))
        seen[queue] = record.queue_offset + (count or 1), stretch.begin
        seen |= {(name, 0): (n + 1, stretch.begin) for name, n in lights}


def lights_of(record: DecodedRecord) -> tuple[tuple[str, int], ...]:
    """The light queues that a record says, with its queue offsets there; none where these do not fit together."""
    names, offsets = (record.properties.get(name, "").split(",") for name in (LIGHT_NAMES, LIGHT_OFFSETS))
    if len(names) != len(offsets) or not all(n.isascii() and n.isdecimal() and len(n) <= 18 for n in offsets):
        return ()
    return tuple((name, int(n)) for name, n in zip(names, offsets, strict=True) if name)


def _light_gap(gaps: list[LightGap], seen: dict[tuple[str, int], tuple[int, int]], stretches: list[Stretch], offset: int,
               record: DecodedRecord) -> None:
    """Light queues lack what the records before and behind a stretch leave out, as other queues do. Which message each of these
    was is known in the end: it lies in another queue as well."""
    if record.sys_flag & TRANSACTION_ROLLBACK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
        return
    for name, at in lights_of(record):
        expected, before = seen.get((name, 0), (at, offset))
        between = [s for s in stretches[bisect_left(stretches, (before,)):] if s.begin < offset] if at > expected else []
        if between and (at - expected) * BLANK_SIZE < sum(s.end - s.begin for s in between):
            gaps.append(LightGap(name, expected, at, between))
        seen[name, 0] = at + 1, offset


def _attach(lost: dict[Stretch, list[Lost]], gap: LightGap) -> None:
    """Each lost message of these stretches has one of the offsets. Other tombstones stand for those that are left over."""
    at = gap.begin
    for stretch in gap.stretches:
        messages = lost[stretch]
        for n, message in enumerate(messages):
            if at < gap.end and message.messages == 0 and all(name != gap.name for name in (
                    message.topic, *(name for name, _ in message.lights))):
                messages[n] = message._replace(lights=(*message.lights, (gap.name, at)))
                at += 1
    _share(lost, gap.stretches, _lost_between((gap.name, 0), at, gap.end, False))


def messages_of(record: DecodedRecord) -> int:
    """How many messages an inner batch has; 0 of a record that is none."""
    if not record.sys_flag & FLAG_INNER_BATCH:
        return 0
    told = [record.properties.get(name, "") for name in ("INNER_NUM", "INNER_BASE")]
    count, base = (int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else -1 for text in told)
    return count if base == record.queue_offset and 0 < count <= COUNT_MAX else 1


def _gap(lost: dict[Stretch, list[Lost]], misfits: dict[tuple[str, int], Misfit], seen: dict[tuple[str, int], tuple[int, int]],
         stretches: list[Stretch], offset: int, record: DecodedRecord) -> None:
    if record.sys_flag & TRANSACTION_ROLLBACK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
        return
    queue, count = (record.topic, record.queue_id), messages_of(record)
    expected, before = seen.get(queue, (record.queue_offset, offset))
    if record.queue_offset < expected and any(s.begin == before for s in stretches):     # entries said more than was there
        for messages in lost.values():
            messages[:] = [m for m in messages if (m.topic, m.queue_id) != queue or m.queue_offset < record.queue_offset]
        expected = record.queue_offset
    if record.queue_offset > expected:
        between = [s for s in stretches[bisect_left(stretches, (before,)):] if s.begin < offset]
        missing = range(expected, record.queue_offset, COUNT_MAX if count > 0 else 1)      # as many as a rotten field says
        if len(missing) * BLANK_SIZE < sum(s.end - s.begin for s in between):
            _share(lost, between, _lost_between(queue, expected, record.queue_offset, count > 0))
        else:
            misfits.setdefault(queue, Misfit(offset, *queue, record.queue_offset, expected - 1))
    elif record.queue_offset < expected:
        misfits.setdefault(queue, Misfit(offset, *queue, record.queue_offset, expected - 1))
    seen[queue] = record.queue_offset + (count or 1), offset


def _share(lost: dict[Stretch, list[Lost]], stretches: list[Stretch], messages: list[Lost]) -> None:
    """Of messages of which nothing says in which of these stretches they lay, each has what fits, the last one the rest."""
    for stretch in stretches:
        room = stretch.end - stretch.begin - sum(_least(message) for message in lost[stretch])
        fit = 0
        while fit < len(messages) and (stretch is stretches[-1] or room >= 2 * _least(messages[fit])):
            room -= _least(messages[fit])
            fit += 1
        lost[stretch] += messages[:fit]
        messages = messages[fit:]


def _least(message: Lost) -> int:
    """Bytes that its tombstone takes, and no property."""
    lights = sum(len(name.encode("utf-8", "surrogateescape")) + 2 + len(str(at)) for name, at in message.lights)
    return (RECORD_FIXED_SIZE + len(message.topic.encode("utf-8", "surrogateescape")) + 3 * message.messages
            + (lights + len(LIGHT_NAMES) + len(LIGHT_OFFSETS) + 4 if lights else 0))


def _lost_between(queue: tuple[str, int], begin: int, end: int, batched: bool) -> list[Lost]:
    """One for each record that has to stand for the queue offsets [begin, end)."""
    step = COUNT_MAX if batched else 1
    return [Lost(*queue, at, min(step, end - at) if batched else 0) for at in range(begin, end, step)]


def fill(stretch: Stretch, lost: list[Lost], store_timestamp: int, *, crc_property: bool = False) -> bytes | None:
    """The bytes to write from stretch.begin on; None where what was lost does not fit.

    Where a good record follows in the file they are as long as the stretch; else they end with an end-of-file record. Where
    messages were so short that tombstones take more, these go without the property DAMAGED.
    """
    data = _fill(stretch, lost, store_timestamp, crc_property, True)
    return _fill(stretch, lost, store_timestamp, crc_property, False) if data is None else data


def _fill(stretch: Stretch, lost: list[Lost], store_timestamp: int, crc_property: bool, marked: bool) -> bytes | None:
    room, parts, at = stretch.end - stretch.begin, [], stretch.begin
    for n, message in enumerate(lost):
        last = n == len(lost) - 1 and not stretch.to_end
        part = _stone(message, at, stretch, store_timestamp, room if last else None, 0, crc_property, marked)
        if part is None or len(part) > room - (BLANK_SIZE if stretch.to_end else 0):
            return None
        parts.append(part)
        room -= len(part)
        at += len(part)
    if stretch.to_end:
        if room < BLANK_SIZE:
            return None
        return b"".join(parts) + encode_blank(room)
    if room:
        part = _stone(Lost(DAMAGED, 0, 0), at, stretch, store_timestamp, room, TRANSACTION_ROLLBACK, crc_property, marked)
        if part is None:
            return None
        parts.append(part)
    return b"".join(parts)


def _stone(message: Lost, at: int, stretch: Stretch, store_timestamp: int, size: int | None, sys_flag: int,
           crc_property: bool, marked: bool) -> bytes | None:
    """One record, `size` bytes long (None: as short as it can be). marked: with the property DAMAGED."""
    properties = {DAMAGED: str(stretch.begin)} if marked else {}
    if message.lights:
        properties |= {LIGHT_NAMES: ",".join(name for name, _ in message.lights),
                       LIGHT_OFFSETS: ",".join(str(at) for _, at in message.lights)}
    if message.messages:
        sys_flag |= FLAG_INNER_BATCH
        properties |= {"INNER_NUM": str(message.messages), "INNER_BASE": str(message.queue_offset)}

    def record(more: int) -> bytes:
        body = encode_batch([*[b""] * (message.messages - 1), bytes(more)]) if message.messages else bytes(more)
        return encode_record(message.topic, body, queue_id=message.queue_id, queue_offset=message.queue_offset,
                             physical_offset=at, sys_flag=sys_flag, store_timestamp=store_timestamp,
                             born_timestamp=store_timestamp, properties=properties, crc_property=crc_property)

    short = record(0)
    if size is None:
        return short
    return record(size - len(short)) if size >= len(short) else None
