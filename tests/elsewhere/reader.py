"""A reader in a process of its own that looks at a store again and again, and at every byte of what it finds.

Arguments: the store's path, and how: `reopened` (a readonly store for each look), `held` (one for all of them), `followed`
(that one, with follow=True), `verify`, `scrub`, `mmap` or `pread` (as a Spark task reads the log). Prints a line a look, JSON:
how much it saw, what was wrong, and what is damaged and was called so. Ends when its input does.

Each message says in its body who it is, and has the body's checksum and its number as properties too: bytes of another message
show.
"""
import json
import logging
import select
import sys
import time
import zlib
from collections import deque

from rmq_store import MessageStore, scrub, verify
from rmq_store.spark.arrow import open_if_there
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.splits import plan

TOPICS = ("T", "U")
WANTED = ["topic", "queueId", "body", "keys"]


def wrong(topic, queue_id, key, body):
    """What is wrong with these bytes, None: nothing."""
    place, _, rest = bytes(body).partition(b"|")
    crc, _, payload = rest.partition(b"|")
    if place != f"{topic}/{queue_id}/{key}".encode():
        return f"{topic}/{queue_id}/{key}: the body is of {place[:40]!r}"
    return None if crc == b"%d" % zlib.crc32(payload) else f"{topic}/{queue_id}/{key}: wrong checksum"


def judge(m, problems, damaged):
    if "DAMAGED" in m.properties or not m.body_crc_ok:      # a message that says so, or stands in the place of one
        damaged.append(f"{m.topic}/{m.queue_id}/{m.keys}")
    else:
        problems.append(wrong(m.topic, m.queue_id, m.keys, m.body))


def walk(store, kept):
    seen, problems, damaged = 0, [], []
    for topic in TOPICS:
        for queue_id in store.queues(topic):
            for message in store.scan(topic, queue_id):
                seen += 1
                judge(message, problems, damaged)
                kept.append((message, zlib.crc32(message.raw)))
    for message in store.scan():
        seen += 1
        judge(message, problems, damaged)
    for message, crc in kept:           # whatever the writer did since
        if zlib.crc32(message.raw) != crc:
            problems.append(f"{message.topic}/{message.queue_id}: the bytes under a view have changed")
    return seen, [p for p in problems if p], damaged


def columns(buffers, name, i):
    found = buffers[name]
    at = memoryview(found.offsets).cast("i")
    return bytes(found.data[at[i]:at[i + 1]])


def splits(root, io):
    seen, problems, damaged = 0, [], []
    options = ReadOptions.parse({"path": root, "splitSize": "20000", "io": io, "verify": "crc"})
    for part in plan(options):
        for piece in part:
            split = open_if_there(piece, options)
            if split is None:
                continue
            with split:
                while (found := split.batch(WANTED)) is not None:
                    count, buffers = found
                    queue_ids = memoryview(buffers["queueId"]).cast("i")
                    for i in range(count):
                        topic = columns(buffers, "topic", i).decode()
                        if topic in TOPICS:
                            problems.append(wrong(topic, queue_ids[i], columns(buffers, "keys", i).decode(),
                                                  columns(buffers, "body", i)))
                    seen += count
                    damaged += map(str, split.take_bad())
    return seen, [p for p in problems if p], damaged


def looks(root, how):
    """Without end: (how much was seen, what was wrong, what is damaged)."""
    kept = deque(maxlen=200)
    if how in ("held", "followed"):
        with MessageStore.open(root, readonly=True, follow=how == "followed") as store:
            if how == "followed" and not store.queues("T"):         # opened while the writer mends it
                store.wait_for_message("T", 0, 0, 60)
            while True:
                yield walk(store, kept)
                for queue in [(topic, queue_id) for topic in TOPICS for queue_id in store.queues(topic)]:
                    if how == "followed":
                        store.offset_by_time(*queue, int(time.time() * 1000) - 5)
    while True:
        if how == "reopened":
            with MessageStore.open(root, readonly=True) as store:
                yield walk(store, kept)
        elif how == "verify":
            yield 1, [], [str(f) for f in verify(root) if f.severity != "note"]
        elif how == "scrub":
            result = scrub(root, bytes_per_s=None)
            yield result.files, [], [str(f) for f in result.findings if f.severity != "note"]
        else:
            yield splits(root, how)


def main():
    logging.disable(logging.CRITICAL)
    for seen, problems, damaged in looks(*sys.argv[1:]):
        print(json.dumps([seen, problems[:5], damaged[:5]]), flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            break


main()
