"""Two answers of get that only a queue gives whose entries or records are not there any more; one can go on behind them."""
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import GetStatus

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 20 * 10, "index_enabled": False}


def messages(store, begin):
    """Bodies from a queue offset on, as a reader finds them who goes on where next_offset says; and what it was told."""
    found, told = [], []
    while begin < store.max_offset("T", 0):
        got = store.get("T", 0, begin)
        told.append(got.status)
        found += [bytes(m.body) for m in got]
        assert got.next_offset > begin
        begin = got.next_offset
    return found, told


def test_message_was_removing_where_no_record_can_be_read(tmp_path):
    """The entries of one queue file are there, and the records they lead to are not: as beside a broker that cleans."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        places = [store.put("T", b"%02d" % i, queue_id=0) for i in range(15)]
        store.flush()
        assert store.wait_dispatched(10)
        with open(tmp_path / "s/commitlog" / ("0" * 20), "r+b") as log:
            log.write(bytes(places[10].offset))         # the first ten
        got = store.get("T", 0, 3)
        assert (got.status, list(got), got.next_offset, got.unreadable) == (GetStatus.MESSAGE_WAS_REMOVING, [], 10, 7)
        assert messages(store, 0) == ([b"%02d" % i for i in range(10, 15)],
                                      [GetStatus.MESSAGE_WAS_REMOVING, GetStatus.FOUND])


@pytest.mark.parametrize("place", [-1, -2, -1 << 63])
def test_an_entry_that_leads_before_the_log_is_unreadable(tmp_path, place):
    """It is damage, and is told as such; not an entry that the tags left out."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(5):
            store.put("T", b"%d" % i)
        assert store.wait_dispatched(10)
    with open(tmp_path / "s/consumequeue/T/0" / ("0" * 20), "r+b") as queue:
        queue.seek(20)
        queue.write(place.to_bytes(8, "big", signed=True))
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as store:
        got = store.get("T", 0, 0)
        assert [bytes(m.body) for m in got] == [b"0", b"2", b"3", b"4"] and got.unreadable == 1


def test_offset_found_null_where_the_queue_goes_while_one_looks(tmp_path):
    """A get that found its offset inside the queue, whose files were deleted before it could open the one it needs."""
    path, options = tmp_path / "s", {**SMALL, "consumequeue_fd_max": 3}
    with MessageStore.open(path, **options) as store:
        store.put_many("T", [b"%02d" % i for i in range(60)])
        assert store.wait_dispatched(10)
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(path, _io=io, **options) as store:
        for offset in (55, 42, 32):
            assert store.get("T", 0, offset, 1).status == GetStatus.FOUND       # and no other queue file is open any more
        io.hold("open", path=f"/consumequeue/T/0/{200:020d}")
        got = []
        reader = threading.Thread(target=lambda: got.append(store.get("T", 0, 17)))
        reader.start()
        io.wait_held()
        store.delete_topics("T")
        io.release()
        reader.join()
        assert (got[0].status, list(got[0]), got[0].next_offset) == (GetStatus.OFFSET_FOUND_NULL, [], 20)
        assert store.get("T", 0, got[0].next_offset).status == GetStatus.NO_MESSAGE_IN_QUEUE
