"""ConsumeQueueExt switched on and off between runs: entries of one queue with and without an address of a unit."""
import itertools

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "index_slots": 100, "index_entries_max": 1000}


def with_tag(store):
    at = 0
    while at < store.max_offset("T", 0):
        got = store.get("T", 0, at, tags="odd")
        at = got.next_offset
        yield from got


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("runs", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("count", [1, 15, 50])
def test_every_message_stays(tmp_path, runs, count, crash):
    for run, ext in enumerate(runs):
        with MessageStore.open(tmp_path, consumequeue_ext_enabled=ext, **SMALL) as s:
            assert [bytes(m.body) for m in s.scan("T", 0)] == [b"%d" % i for i in range(run * count)]
            assert [m.queue_offset for m in with_tag(s)] == list(range(1, run * count, 2))
            for i in range(run * count, (run + 1) * count):
                assert s.put("T", b"%d" % i, tags="odd" if i % 2 else "even").queue_offset == i
        if crash:
            (tmp_path / "abort").touch()
