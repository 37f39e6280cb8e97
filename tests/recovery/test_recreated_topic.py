"""A topic that a Java broker deleted, by taking its queues away, and made again: its numbers begin at 0 a second time."""
import shutil

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 400, "index_enabled": False}


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("count", [1, 5, 30])
def test_a_crash_before_the_checkpoint_covers_it(tmp_path, count, lives):
    with MessageStore.open(tmp_path, **SMALL) as s:
        for i in range(10):
            s.put("A", b"old%d" % i)
        s.put("U", b"u")
    for life in range(lives):
        shutil.rmtree(tmp_path / "consumequeue" / "A")
        with MessageStore.open(tmp_path, **SMALL) as s:
            for i in range(count):
                assert s.put("A", b"new%d %d" % (life, i), wait=True).queue_offset == i
            s.put("U", b"u")
    for n in range(3):
        (tmp_path / "abort").touch()
        with MessageStore.open(tmp_path, **SMALL) as s:
            new = [b"new%d %d" % (lives - 1, i) for i in range(count)]
            assert [bytes(m.body) for m in s.scan("A", 0)] == new + [b"more"] * n
            assert s.put("A", b"more", wait=True).queue_offset == count + n
