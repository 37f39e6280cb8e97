"""A bit that rots in the newest entry of a queue, in a store that was closed in order: dispatch begins where a record does."""
import struct

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 20 * 100, "index_slots": 50, "index_entries_max": 200}
UNIT = ">qiq"


def fill(root, length, tags):
    with MessageStore.open(root, **SMALL) as store:
        for i in range(40):
            store.put("T", bytes(length), queue_id=i % 2, tags=tags)


def flip(root, queue_id, index, byte, bit):
    with open(root / "consumequeue" / "T" / str(queue_id) / f"{0:020d}", "r+b") as file:
        file.seek(index * 20 + byte)
        value = file.read(1)[0]
        file.seek(index * 20 + byte)
        file.write(bytes([value ^ 1 << bit]))


def end_of(entry):
    return entry[0] + entry[1] if entry[1] > 0 and entry[0] >= 0 else -1


def entries(root, queue_id):
    data = (root / "consumequeue" / "T" / str(queue_id) / f"{0:020d}").read_bytes()
    return [struct.unpack_from(UNIT, data, i * 20) for i in range(20)]


@pytest.mark.parametrize("length, tags", [(300, None), (301, "a"), (303, None), (307, "a")])
@pytest.mark.parametrize("byte", [*range(12)])
def test_every_message_that_comes_next_is_delivered(tmp_path, length, tags, byte):
    for bit in range(8):
        root = tmp_path / str(bit)
        fill(root, length, tags)
        whole = entries(root, 1)
        flip(root, 1, 19, byte, bit)
        rotten = entries(root, 1)[19]
        with MessageStore.open(root, **SMALL) as store:
            assert store.max_offset("T", 0) == 20
            new = [store.put("Other", b"new %d" % i, wait=True) for i in range(5)]
            assert store.wait_dispatched(30)
            assert [bytes(m.body) for m in store.scan("Other", 0)] == [b"new %d" % i for i in range(5)]
            assert [p.queue_offset for p in new] == list(range(5)) and store.stats()["unreadable_records"] == 0
            found = [m.queue_offset for m in store.scan("T", 1)]
            assert found[:19] == list(range(19))
        if end_of(rotten) > end_of(whole[19]):      # where dispatch would have begun: found, and written again
            assert found == list(range(20)) and entries(root, 1) == whole


def test_several_rotten_ones(tmp_path):
    root = tmp_path / "s"
    fill(root, 300, None)
    for queue_id in (0, 1):
        for index in range(20 - queue_id * 5, 20):
            flip(root, queue_id, index, 10, 1)
        flip(root, queue_id, 19, 7, 1)
    with MessageStore.open(root, **SMALL) as store:
        store.put("Other", b"new")
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("Other", 0)] == [b"new"]
        assert [len(list(store.scan("T", q))) for q in (0, 1)] == [20, 20]
