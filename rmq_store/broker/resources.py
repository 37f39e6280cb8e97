"""What an account needs for each request: one row a code (RocketMQ: PlainAccessResource).

A broker whose processors have a code without a row does not start. docs/broker.md shows the rows
(`python -m rmq_store.broker.resources`). A message reaches more than the topic of its header: each property that leads it
elsewhere, now or when it is due, is a resource, too.
What a processor has to read first, as the topic of a message that an offset names, it asks for by `require`. Any thread.
"""
from collections.abc import Callable, Iterator
from typing import Any

from rmq_store.broker.codes import PUB, RETRY, SUB, WAITING, Code
from rmq_store.broker.request import Refused, Request, json_body
from rmq_store.codec._batch import decode_batch
from rmq_store.codec._properties import decode_properties
from rmq_store.errors import RmqStoreError
from rmq_store.fields import NamedTuple
from rmq_store.remoting.frame import Frame

__all__ = ["EXCEPTION", "ROWS", "Needed", "Row", "allowed", "record_topic", "refuse", "require", "table", "topic_of"]

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
Needed = Iterator[tuple[str, int]]              # topic, or %RETRY%group, and what the request does with it
LETTERS = frozenset((310, 320, 325))            # their fields have names of one letter
LIGHT, RECALL = "INNER_MULTI_DISPATCH", "TIMER_DEL_UNIQKEY"


class Row(NamedTuple):
    """what: the request, for people. needs: what its account needs, for people; with the reason where that is nothing. of: the
    resources; None for none, or where the processor asks."""

    what: str
    needs: str
    of: Callable[[Frame], Needed] | None = None
    admin: bool = False


def topic_of(frame: Frame) -> str:
    return frame.ext.get("b" if frame.code in LETTERS else "topic", "")


def record_topic(topic: str, properties: "dict[str, str]") -> str:
    """The topic of a stored message: of one that waits, the one that it is for."""
    return properties.get("REAL_TOPIC", topic) if topic in WAITING else topic


def refuse(resource: str) -> Refused:
    kind, name = ("group", resource[len(RETRY):]) if resource.startswith(RETRY) else ("topic", resource)
    return Refused(Code.SYSTEM_ERROR, f"{EXCEPTION}No default permission for {kind}:{name:.255}")


def allowed(request: Request, resource: str, perm: int) -> bool:
    """Of a processor that has found out what the request reaches."""
    return request.account is None or request.account.may(resource, perm)


def require(request: Request, resource: str, perm: int) -> None:
    """As `allowed`. Raises Refused."""
    if not allowed(request, resource, perm):
        raise refuse(resource)


# ---- what a request names

def _sends(frame: Frame) -> Needed:
    topic = topic_of(frame)
    yield topic, SUB if topic.startswith(RETRY) else PUB        # a consumer puts back what failed
    yield from _elsewhere(frame.ext.get("i" if frame.code in LETTERS else "properties", "").encode(errors="replace"))
    if LIGHT.encode() in frame.body or RECALL.encode() in frame.body:
        yield from _of_batch(frame)


def _of_batch(frame: Frame) -> Needed:
    if frame.code == 320 or frame.ext.get("m" if frame.code in LETTERS else "batch", "").lower() in ("true", "1"):
        try:
            messages = decode_batch(frame.body)
        except (RmqStoreError, ValueError):     # the processor refuses it
            return
        for message in messages:
            yield from _elsewhere(bytes(message.properties))


def _elsewhere(properties: bytes) -> Needed:
    """The light queues that a message goes to as well, and the topic of a timer message that it takes back."""
    if LIGHT.encode() not in properties and RECALL.encode() not in properties:
        return
    found = decode_properties(properties)
    for name in filter(None, found.get(LIGHT, "").split(",")):
        yield name, PUB
    if "+" in found.get(RECALL, ""):
        yield found[RECALL].partition("+")[0], PUB


def _topic(perm: int) -> Callable[[Frame], Needed]:
    return lambda frame: iter([(topic_of(frame), perm)])


def _group(field: str, *, optional: bool = False) -> Callable[[Frame], Needed]:
    def of(frame: Frame) -> Needed:
        if not optional or frame.ext.get(field):
            yield RETRY + frame.ext.get(field, ""), SUB

    return of


def _topic_and_group(field: str) -> Callable[[Frame], Needed]:
    def of(frame: Frame) -> Needed:
        yield topic_of(frame), SUB
        yield RETRY + frame.ext.get(field, ""), SUB

    return of


def _group_of_body(frame: Frame) -> Needed:
    yield RETRY + str(json_body(frame).get("consumerGroup") or ""), SUB


def _heartbeat(frame: Frame) -> Needed:
    for data in _dicts(json_body(frame).get("consumerDataSet")):
        yield RETRY + str(data.get("groupName") or ""), SUB
        for subscription in _dicts(data.get("subscriptionDataSet")):
            yield str(subscription.get("topic") or ""), SUB


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# ---- the rows

_SEND = ("PUB of the topic, SUB of the group for a retry topic; PUB of each light queue of `INNER_MULTI_DISPATCH`, and of the "
         "topic of `TIMER_DEL_UNIQKEY`, also within a batch")
_REPLY = _SEND + "; nothing for the topic of replies of the cluster, because whoever was asked may answer"
_BOTH = "SUB of topic and group"
_GROUP = "SUB of the group"
_ADMIN = "an administrator"
_OFFSETS = "nothing: a number, as in RocketMQ; it tells no message"
_SHOWS = "nothing: it shows names and figures, as in RocketMQ, and no message"
_COPIES = "nothing: a slave copies it, as in RocketMQ; it has no message"

ROWS: dict[int, Row] = {
    10: Row("send", _SEND, _sends),
    11: Row("pull", _BOTH, _topic_and_group("consumerGroup")),
    12: Row("query by key", "SUB of the topic", lambda frame: iter([(frame.ext.get("topic", ""), SUB)])),
    14: Row("query an offset of a group", _OFFSETS),
    15: Row("commit an offset", _BOTH, _topic_and_group("consumerGroup")),
    17: Row("make or change a topic", _ADMIN, admin=True),
    21: Row("show all topics", _SHOWS),
    25: Row("change options", _ADMIN, admin=True),
    26: Row("show options", "nothing: as in RocketMQ; it leaves out passwords"),
    28: Row("show figures of the broker", _SHOWS),
    29: Row("search an offset by time", _OFFSETS),
    30: Row("the highest offset of a queue", _OFFSETS),
    31: Row("the lowest offset of a queue", _OFFSETS),
    32: Row("the time of the oldest message", _OFFSETS),
    33: Row("a message by its id", "SUB of the topic of the message"),
    34: Row("heartbeat", "SUB of each consumer group and of each topic that it reads; nothing for a producer group, because "
            "RocketMQ gives producer groups no permissions: the check of a transaction (39) goes to a producer with PUB of the "
            "topic", _heartbeat),
    35: Row("end of a client", "SUB of the consumer group, if it names one", _group("consumerGroup", optional=True)),
    36: Row("send back", "SUB of the group, and of the topic of the message", _group("group")),
    37: Row("end a transaction", "PUB of the topic of the half message"),
    38: Row("show the clients of a group", _GROUP, _group("consumerGroup")),
    41: Row("lock queues", _GROUP, _group_of_body),
    42: Row("unlock queues", _GROUP, _group_of_body),
    43: Row("show all offsets", _COPIES),
    45: Row("show the offsets of delay levels", _COPIES),
    46: Row("check a filter", "nothing: the broker parses it, and keeps nothing"),
    60: Row("show the checkpoint of the timer", _COPIES),
    61: Row("show counts of the timer", _COPIES),
    200: Row("make or change a group", _ADMIN, admin=True),
    201: Row("show all groups", _SHOWS),
    202: Row("show the queues of a topic", _SHOWS),
    203: Row("show the connections of a consumer group", _SHOWS),
    204: Row("show the connections of a producer group", _SHOWS),
    207: Row("delete a group", _ADMIN, admin=True),
    208: Row("show the progress of a group", _SHOWS),
    215: Row("delete a topic", _ADMIN, admin=True),
    222: Row("reset the offsets of a group", _BOTH, _topic_and_group("group")),
    300: Row("show the groups of a topic", _SHOWS),
    307: Row("ask a client for its state", _GROUP, _group("consumerGroup")),
    309: Row("have a client consume a message", "SUB of the group, and of the topic of the message", _group("consumerGroup")),
    310: Row("send", _SEND, _sends),
    315: Row("show a statistic", _SHOWS),
    320: Row("send a batch", _SEND, _sends),
    324: Row("reply", _REPLY, _sends),
    325: Row("reply", _REPLY, _sends),
    351: Row("show a topic", _SHOWS),
    352: Row("show a group", _SHOWS),
    361: Row("lite pull", _BOTH, _topic_and_group("consumerGroup")),
    370: Row("recall a timer message", "PUB of the topic", _topic(PUB)),
    402: Row("show how groups read", _COPIES),
}


def table() -> str:
    """The table of docs/broker.md."""
    lines = ["| code | request | what its account needs |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {code} | {row.what} | {row.needs} |" for code, row in sorted(ROWS.items()))])


if __name__ == "__main__":
    print(table())
