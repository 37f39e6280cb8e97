"""Queue files whose entries lead to whole records, but of another queue or place: the log says what belongs there."""

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


def crashed(tmp_path, queued):
    """The image of a kill whose log a checkpoint covers up to its last file. T/0 and T/1 have only `queued` entries."""
    live, root = tmp_path / "live", tmp_path / "image"
    io = ProbeIo(keep_bytes=False)
    io.set_clock(1_700_000_000_000, 10_000)
    for begin, end in ((0, 52), (52, 60)):
        with MessageStore.open(live, _io=io, **SMALL) as s:
            for i in range(begin, end):
                s.put("T", body(i), queue_id=i % 2)
            s.wait_dispatched(10)
            s.flush()
            take_image(live, root, over=True)
    for queue_id, count in enumerate(queued):
        path = queue(root, queue_id)
        path.write_bytes(path.read_bytes()[:20 * count].ljust(2000, b"\0"))
    return root


def body(i):
    return b"message %d" % i * 60


def queue(root, queue_id, start=0):
    return root / "consumequeue" / "T" / str(queue_id) / f"{start:020d}"


def bodies(store, queue_id):
    return [bytes(m.body) for m in store.scan("T", queue_id)]


@pytest.mark.parametrize("queued", [(30, 26), (26, 30), (28, 27)])
def test_two_queues_were_swapped(tmp_path, queued):
    root = crashed(tmp_path, queued)
    queue(root, 0).rename(root / "aside")
    queue(root, 1).rename(queue(root, 0))
    (root / "aside").rename(queue(root, 1))
    for _ in range(2):
        with MessageStore.open(root, **SMALL) as s:
            assert [bodies(s, q) for q in (0, 1)] == [[body(i) for i in range(q, 60, 2)] for q in (0, 1)]


@pytest.mark.parametrize("queued", [26, 27, 30])
def test_the_only_file_of_a_queue_has_a_later_name(tmp_path, queued):
    root = crashed(tmp_path, (queued, 30))
    queue(root, 0).rename(queue(root, 0, 2000))
    with MessageStore.open(root, readonly=True, **SMALL) as s:
        bodies(s, 0)
    for _ in range(2):
        with MessageStore.open(root, **SMALL) as s:
            assert (s.min_offset("T", 0), s.max_offset("T", 0)) == (0, 30)
            assert bodies(s, 0) == [body(i) for i in range(0, 60, 2)]
    assert sorted(p.name for p in queue(root, 0).parent.iterdir()) == [f"{0:020d}"]
