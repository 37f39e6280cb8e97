"""Staged messages without Spark: the same ones each time, so that what was committed can be told from what was not."""
import struct

from rmq_store import MessageStore
from rmq_store.access.bulk._staged import encode_rows
from rmq_store.spark import staging

SMALL = {"segment_size_bytes": 65536, "index_slots": 100, "index_entries_max": 1000}


def text(*values):
    """Arrow buffers of a text column."""
    data = b"".join(v or b"" for v in values)
    ends, at = [0], 0
    for v in values:
        at += len(v or b"")
        ends.append(at)
    bits = bytearray((len(values) + 7) // 8)
    for i, v in enumerate(values):
        bits[i >> 3] |= (v is not None) << (i & 7)
    return bytes(bits), struct.pack(f"{len(ends)}i", *ends), data


def numbers(*values, code="i"):
    return None, None, struct.pack(f"{len(values)}{code}", *values)


def batch(n, first=0, pad=b""):
    return encode_rows({"topic": text(*[b"T"] * n), "body": text(*[b"body %d" % (first + i) + pad for i in range(n)]),
                        "tags": text(*[b"A"] * n), "queueId": numbers(*[i % 2 for i in range(n)])}, n, now=1234)


def staged(root, *counts, job="job", first=0, pad=b""):
    """Staging files of so many messages each; their bodies count on."""
    assert staging.enter(str(root), job, "an application that never commits", 0)
    found = []
    for i, n in enumerate(counts):
        file = staging.StageFile(str(root), job, i)
        file.add(batch(n, first, pad), n)
        found.append(file.finish())
        first += n
    return found


def expected(n, pad=b""):
    return [b"body %d" % i + pad for i in range(n)]


def bodies(root, **options):
    """What a store holds, in the order of its log."""
    with MessageStore.open(root, readonly=True, **options) as store:
        return [bytes(m.body) for m in store.scan()]
