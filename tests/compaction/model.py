"""A small run with a compaction topic on a probe, and what must hold of whatever is left of it."""
import random

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 4096, "index_slots": 20, "index_entries_max": 40, "consumequeue_file_size_bytes": 20 * 64,
         "message_size_max_bytes": 2048, "flush_interval_ms": 3_600_000, "flush_interval_max_ms": 3_600_000,
         "consumequeue_flush_interval_ms": 3_600_000, "consumequeue_flush_interval_max_ms": 3_600_000,
         "compaction_file_size_bytes": 4096, "compaction_cq_file_size_bytes": 46 * 20, "write_path": "mmap"}


def messages(count, seed=1):
    """(key, body); no body deletes the key."""
    rnd = random.Random(seed)
    return [(f"k{rnd.randrange(8)}", b"" if rnd.random() < 0.1 else b"%04d" % i + bytes(rnd.randrange(80)))
            for i in range(count)]


def newest(some):
    found = {}
    for key, body in some:
        found.pop(key, None)
        if body:
            found[key] = body
    return found


def work(store, sent, mark=lambda note: None, per_round=25):
    """Puts all of it, compacts and cleans in between."""
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    store.topic_table.flush()
    mark(("policy", True))
    for i, (key, body) in enumerate(sent):
        store.put("C", body, keys=key)
        if i % per_round == per_round - 1:
            store.flush()
            mark(("durable", i + 1))
            store.wait_dispatched(10)
            store.compact("C")
            store.clean(hours=0, pace_ms=0)


def walked(store):
    """The messages of the queue as a reader meets them, and whether it met them in order."""
    at, found = 0, []
    while True:
        result = store.get("C", 0, at, 32)
        if not result.messages and result.next_offset <= at:
            return found
        found += [(m.queue_offset, m.keys, bytes(m.body)) for m in result]
        assert result.next_offset > at
        at = result.next_offset


def wrong(store, sent, durable):
    """What is wrong with a store that holds the first messages of `sent`: a text, or None."""
    end = store.max_offset("C", 0)
    if not durable <= end <= len(sent):
        return f"{end} messages, {durable} were durable"
    expected = newest(sent[:end])
    found = walked(store)
    offsets = [offset for offset, _, _ in found]
    if offsets != sorted(set(offsets)):
        return f"offsets {offsets} do not ascend"
    strange = [f for f in found if f[1:] != sent[f[0]]]
    if strange:
        return f"{strange[0]} is not the message that was put"
    if newest((key, body) for _, key, body in found) != expected:
        return "a reader who begins at 0 does not end with the newest values"
    if {key: bytes(m.body) for key, m in store.table("C").items()} != expected:
        return "the table does not have the newest values"
    return None


def open_store(root, io=None, **more):
    return MessageStore.open(root, _io=io, _services=False, **{**SMALL, **more})
