"""Logs that begin where 32 bits end, and far beyond: every place is 64 bits wide (faults 25 and 16 of the design)."""

import pytest

import rmq_store
from rmq_store import MessageStore
from tests.images import take_image

SIZE = 1 << 16
SMALL = {"segment_size_bytes": SIZE, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


@pytest.mark.parametrize("start", [(1 << 31) - 2 * SIZE, (1 << 32) - SIZE, 1 << 40, (1 << 62) - (1 << 62) % SIZE])
@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_a_log_that_begins_far_away(tmp_path, start, write_path):
    root, image = tmp_path / "s", tmp_path / "killed"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{start:020d}").write_bytes(bytes(SIZE))
    bodies = [b"message %d" % i * 30 for i in range(900)]
    with MessageStore.open(root, write_path=write_path, **SMALL) as s:
        assert s.min_log_offset == s.max_log_offset == start
        places = [s.put("T", body, keys=f"k{i}") for i, body in enumerate(bodies)]
        assert places[0].offset == start and places[-1].offset > start + 3 * SIZE
        s.flush()
        assert s.wait_dispatched(10)
        assert bytes(s.message_by_id(places[-1].msg_id).body) == bodies[-1]
        assert bytes(s.query_key("T", "k899")[0].body) == bodies[-1]
        take_image(root, image)
    for place in (root, image):
        with MessageStore.open(place, **SMALL) as s:
            assert [bytes(m.body) for m in s.scan("T", 0)] == bodies == [bytes(m.body) for m in s.scan()]
            assert s.get("T", 0, 500)[0].offset == places[500].offset
            assert s.put("T", b"on").queue_offset == 900
    assert list(rmq_store.verify(root, **SMALL)) == []


def test_a_name_at_the_end_of_all_offsets_is_left_alone(tmp_path):
    start = ((1 << 63) - 1) // SIZE * SIZE
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    (tmp_path / "s" / "commitlog" / f"{start:020d}").write_bytes(bytes(SIZE))
    with MessageStore.open(tmp_path / "s", **SMALL) as s:      # no file of a log: its end would be no offset
        assert s.max_log_offset == 0 and s.put("T", b"x").offset == 0
