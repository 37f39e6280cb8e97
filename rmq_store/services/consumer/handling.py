"""How a consumer's messages are handled: how long a poll may wait, which handlers `run` calls, and what a message becomes that
failed: a retry in %RETRY%group, or a dead letter in %DLQ%group (RocketMQ: SendMessageProcessor.consumerSendMsgBack).

A handler is through with a message when it returns, or when its result is awaited. Retries and dead letters are copies of a
message that a put has taken, so the limits of the options do not count for them (StorePutMany._put_copy). What does not fit all
the same, because the message fills the 32767 bytes of its properties, is a dead letter that keeps the message's own properties,
and has of those that tell its origin as many as fit: none, if it fills a file of the log. A put leaves room for that. Where
another program has not, the dead letter tells its origin and has no body, which stays where it was.
"""
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rmq_store.access.reader._checked import whole
from rmq_store.base.io.callbacks import check_callback
from rmq_store.errors import MessageIllegal, PropertiesSizeExceeded, illegal
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message

__all__ = ["COUNT_MAX", "RETRY", "TOO_LARGE", "SentBack", "check_handler", "dead_letter_topic", "deadline_of", "forms_of",
           "origin_topic", "retry_topic", "tell_too_large"]

COUNT_MAX = (1 << 31) - 1
CONCURRENCY_MAX = 10_000    # threads, or tasks
RETRY, DEAD = "%RETRY%", "%DLQ%"
TOO_LARGE = (PropertiesSizeExceeded, MessageIllegal)    # what a put raises for a copy that no record can hold
# What belongs to one delivery of a message, and must not come along to the next.
_OF_ONE_DELIVERY = ("DELAY", "REAL_TOPIC", "REAL_QID", "WAIT", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
# Not kept in a dead letter: it would have a place in its light queues again, where its consumer fails again.
LIGHT_PROPERTIES = ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")


def retry_topic(group: str) -> str:
    return RETRY + group


def dead_letter_topic(group: str) -> str:
    return DEAD + group


def origin_topic(message: "Message") -> str:
    """Returns the topic that a message was first put into, also if it comes from a retry or a dead-letter topic."""
    return str(message.properties.get("RETRY_TOPIC", message.topic))


class SentBack(NamedTuple):
    """A message that failed, as it is put again. origin, origin_id: the topic and the id that it had first. times: how often it
    was tried again before. properties: those of put, which a broker orders; put: the other keywords. lacks: None, or what a
    dead letter lacks which was to be a retry, and did not fit: names of properties, and "the body"."""

    topic: str
    dead: bool
    origin: str
    origin_id: str
    times: int
    properties: Mapping[str, str] | bytes
    put: dict[str, Any]
    lacks: list[str] | None = None


def forms_of(message: "Message", group: str, options: Any, *, dead: bool, level: int | None,
             origin_id: str | None = None) -> Iterator[SentBack]:
    """What to put, one after the other until a put does not raise TOO_LARGE; the last one always fits.

    options: of the store. level: of delay_levels, that a retry waits for; None: it is not delayed.
    """
    own, times = message.properties, max(message.reconsume_times, 0)       # a record holds any number that a peer has sent
    topic, id = own.get("RETRY_TOPIC") or message.topic, own.get("ORIGIN_MESSAGE_ID") or origin_id or message.msg_id
    next_time = min(times + 1, COUNT_MAX)
    added = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": id, "RECONSUME_TIME": str(next_time)}
    for_dead = {"DLQ_ORIGIN_TOPIC": own.get("DLQ_ORIGIN_TOPIC") or topic,
                "DLQ_ORIGIN_MESSAGE_ID": own.get("DLQ_ORIGIN_MESSAGE_ID") or id}
    for_retry = {} if level is None else {"DELAY": str(level)}
    put = {"body": message.body, "flag": message.flag, "sys_flag": message.sys_flag & COUNT_MAX,
           "born_timestamp": max(message.born_timestamp, 0), "born_host": message.born_host, "reconsume_times": next_time}

    def made(dead: bool, properties: Mapping[str, str] | bytes, lacks: list[str] | None = None) -> SentBack:
        return SentBack((DEAD if dead else RETRY) + group, dead, topic, id, times, properties, put, lacks)

    left_out = (*_OF_ONE_DELIVERY, *LIGHT_PROPERTIES) if dead else _OF_ONE_DELIVERY
    properties = {name: value for name, value in own.items() if name not in left_out}
    yield made(dead, properties | added | (for_dead if dead else for_retry))
    from rmq_store.codec.copies import copied_properties  # seldom needed
    raw, form = message.properties_raw, (options.compat, options.record_crc)
    if not dead:        # its properties may be none that an encoder writes, and fit as they are
        encoded, lacks = copied_properties(raw, _OF_ONE_DELIVERY, added | for_retry, *form)
        if not lacks:
            yield made(False, encoded)
    encoded, lacks = copied_properties(raw, (*_OF_ONE_DELIVERY, *LIGHT_PROPERTIES), added | for_dead, *form)
    yield made(True, encoded, None if dead and not lacks else lacks)
    # Together with its body it may fill a file of the log.
    bare = copied_properties(raw, (*_OF_ONE_DELIVERY, *LIGHT_PROPERTIES), {}, *form)[0]
    yield made(True, bare, [*added, *for_dead])
    put |= {"body": b"", "sys_flag": 0}
    yield made(True, encoded, [*lacks, "the body"])
    yield made(True, b"", [*own, *added, *for_dead, "the body"])        # a file of 4 KiB is full of properties


def tell_too_large(back: SentBack, group: str) -> None:
    """If it is put, and lacks something."""
    if back.lacks is not None:
        emit(Event.RETRY_TOO_LARGE, group=group, msg_id=back.origin_id, topic=back.origin, to=back.topic,
             lacks=", ".join(back.lacks) or "none")


def deadline_of(timeout: float | None) -> float | None:
    """When a wait ends, by time.monotonic. Raises ArgumentIllegal."""
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise illegal("timeout", timeout, "give seconds, 0 or more, or None for ever")
    return time.monotonic() + timeout


def check_handler(handle: object, concurrency: object, *, awaits: bool) -> None:
    """Raises ArgumentIllegal for what `run` cannot call, and for a concurrency out of range. awaits: whether it awaits what is
    returned."""
    check_callback("handle", handle, "that takes a message", awaits=awaits,
                   cure=", or take the consumer of an AsyncMessageStore, whose run awaits it")
    if isinstance(concurrency, bool):       # a number to Python
        raise illegal("concurrency", concurrency, f"give a whole number, 1 to {CONCURRENCY_MAX}")
    whole(concurrency, "concurrency", 1, CONCURRENCY_MAX)
