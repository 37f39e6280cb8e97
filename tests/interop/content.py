"""What the interop suite writes with our store: one function per kind of message, all seeded, all through the public API.

Each yields the physical offset of every message as soon as its put is acknowledged, so that a writer that is to be killed
can keep a journal. The names of store options are upstream's: the same dict opens our store and the Java one.
"""
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rmq_store import MessageStore

SMALL_FILES = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 800, "maxHashSlotNum": 16, "maxIndexNum": 96}
LARGE_FILES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20000, "maxHashSlotNum": 512,
               "maxIndexNum": 2048}
LONG_TOPIC = "Long" + "topic" * 26      # 134 bytes: a record of version 2

Fill = Callable[[MessageStore, random.Random], Iterator[int]]


def encode_batch(messages: list[tuple[int, bytes, bytes]]) -> bytes:
    """A client's batch body (MessageDecoder.encodeMessages) of (flag, body, properties)."""
    return b"".join(struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body)) + body
                    + struct.pack(">h", len(properties)) + properties for flag, body, properties in messages)


def _body(rng: random.Random, most: int = 900) -> bytes:
    kind = rng.randrange(4)
    n = rng.randrange(most)
    return b"" if kind == 0 and n < most // 4 else bytes(n) if kind == 0 else rng.randbytes(n)


def plain(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """Single messages with tags, keys (several, non-ASCII, colliding hash codes), properties, hosts and times."""
    for i in range(150):
        topic = ("PlainTopic", "%RETRY%group", "t", "Shared")[i % 4]
        queue = (0, 1, 2, 17)[i % 7 % 4]
        if i % 10 == 9:
            yield store.put(topic, _body(rng), queue_id=queue).offset
        elif i % 10 == 8:
            yield store.put(topic, _body(rng), queue_id=queue, flag=-i,
                            properties=b"given\x01as it is\x02other\x01one\x02").offset
        else:
            yield store.put(
                topic, _body(rng), queue_id=queue, tags=("TagA", "order-created", "été")[i % 3],
                keys=("Aa", "BB", f"key-{i} shared", "schlüssel 鍵")[i // 4 % 4],
                properties={"UNIQ_KEY": f"7F0000010A2B18B4AAC2{i:012X}", "user.prop": f"value {i}"} if i % 3 else None,
                flag=i, reconsume_times=i % 5, born_timestamp=1700000000000 + i,
                born_host=f"198.51.100.{i % 250}:{1024 + i}").offset
    packed = zlib.compress(b"compressed by the client " * 40, 5)
    yield store.put("PlainTopic", packed, sys_flag=1, tags="TagA").offset
    yield store.put("PlainTopic", b"multi tags", sys_flag=2, tags="TagA || TagB").offset


def rolled(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """Records of up to 12 KB through many 64 KiB files, so that the blanks at the file ends have many sizes."""
    for i in range(60):
        yield store.put("RolledTopic", rng.randbytes(rng.randrange(12000)), queue_id=i % 3, keys=f"rolled-{i}").offset


def batches(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """put_batch with client-encoded bodies, some across a file's end, and put_many."""
    for i in range(14):
        parts = [(k, _body(rng, 500), b"" if k % 3 == 0 else b"KEYS\x01batch-%d-%d" % (i, k))
                 for k in range(rng.randrange(1, 30))]
        yield from store.put_batch("BatchTopic", encode_batch(parts), queue_id=i % 2).offsets
    yield from store.put_many("BatchTopic", [_body(rng) for _ in range(60)], queue_id=1, tags="many").offsets


def addresses(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """IPv6 and IPv4 born hosts; the store host is an option of the case."""
    for i in range(40):
        host = (None, f"[2001:db8::{i:x}]:{4000 + i}", f"203.0.113.{i}:{5000 + i}")[i % 3]
        yield store.put("AddressTopic", _body(rng), queue_id=i % 2, keys=f"address-{i}", born_host=host).offset
    parts = [(k, b"in a batch", b"KEYS\x01six") for k in range(5)]
    yield from store.put_batch("AddressTopic", encode_batch(parts), born_host="[2001:db8::ffff]:9").offsets


def delayed(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """Delay levels, one of them beyond the last; needs delay="store_only"."""
    for i in range(30):
        level = (1, 3, 18, 25)[i % 4]
        yield store.put("DelayTopic", _body(rng), queue_id=i % 3, tags="later", properties={"DELAY": str(level)}).offset


def transactions(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """Prepared (4), committed (8) and rolled back (12) messages: only the committed ones are queued."""
    for i in range(40):
        yield store.put("TransactionTopic", _body(rng), queue_id=i % 2, keys=f"tx-{i}", sys_flag=(4, 8, 12, 0)[i % 4],
                        prepared_transaction_offset=i * 100 if i % 4 == 1 else 0).offset


def decided(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """Half messages with their real and op messages; a third of them stay pending."""
    offsets = []
    for i in range(30):
        transaction = store.prepare("DecidedTopic", _body(rng), group="producers", queue_id=i % 2, keys=f"decided-{i}")
        if i % 3 == 0:
            offsets.append(transaction.commit().offset)
        elif i % 3 == 1:
            transaction.rollback()
    store._transactions.write_ops(store)
    assert store.wait_dispatched(30)
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
        offsets += [message.offset for message in store.scan(topic)]
    yield from sorted(offsets)


def long_topics(store: MessageStore, rng: random.Random) -> Iterator[int]:
    """Topics of more than 127 bytes."""
    for i in range(40):
        yield store.put((LONG_TOPIC, "ShortTopic")[i % 3 == 2], _body(rng), queue_id=i % 2, keys=f"long-{i}").offset


class Case(NamedTuple):
    """A store to write: what goes in, and with which options (ours) and settings (both sides)."""

    fills: tuple[Fill, ...]
    files: Mapping[str, object] = SMALL_FILES
    settings: Mapping[str, object] = {}     # upstream names, given to the Java store as well
    options: Mapping[str, object] = {}      # ours alone
    compats: tuple[str, ...] = ("4.9", "5.x")
    not_read_by: tuple[str, ...] = ()       # versions that know nothing of this kind
    unknown_to: Mapping[str, tuple[str, ...]] = {}      # version -> settings it has no property for


EVERYTHING = (plain, rolled, batches, addresses, delayed, transactions)

KINDS = {
    "plain": Case((plain,), LARGE_FILES),
    "rolled": Case((rolled, plain)),
    "batch": Case((batches,)),
    "ipv6": Case((addresses, batches), LARGE_FILES, options={"store_host": "[2001:db8:0:1::2]:10911"}),
    "delay": Case((delayed, plain), options={"delay": "store_only"}),
    "transaction": Case((transactions, plain)),
    "decided": Case((decided, plain)),
    "ext": Case((plain, batches), settings={"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 4096}),
    # 4.9.8 silently cuts the log off at the first record of version 2
    "longtopic": Case((long_topics,), LARGE_FILES, {"maxTopicLength": 200}, compats=("5.x",), not_read_by=("4.9.8",)),
    "propcrc": Case((plain, batches), settings={"enabledAppendPropCRC": True}, compats=("5.x",),
                    unknown_to={"4.9.8": ("enabledAppendPropCRC",)}),
}
# the kinds together
CASES = KINDS | {
    "everything": Case(EVERYTHING, options={"delay": "store_only"}),
    # recovery of 5.5.1 looks at no more than the last ten files of the log (commitLogRecoverMaxNum)
    "killed": Case(EVERYTHING, {**SMALL_FILES, "mappedFileSizeCommitLog": 1 << 18}, options={"delay": "store_only"}),
    # opened by the real store as a master, which would deliver what is delayed
    "together": Case((plain, batches, transactions)),
}


def fill(store: MessageStore, case: Case, seed: int = 7) -> Iterator[int]:
    """Everything of a case, in order."""
    rng = random.Random(seed)
    for one in case.fills:
        yield from one(store, rng)
