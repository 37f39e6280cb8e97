"""Repair of stores with batch queues: what an inner batch has counts, and nothing is invented."""
import pytest

from rmq_store import MessageStore, verify
from rmq_store.services.integrity.repair import repair

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000, "consumequeue_file_size_bytes": 2000,
         "batch_consumequeue_file_size_bytes": 4600}


def make(root, batch=2):
    """Offsets in the log of the inner batches of B and of the messages of P, which take turns."""
    batches, plain = [], []
    with MessageStore.open(root, **SMALL) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        for n in range(30):
            batches.append(store.put_inner_batch("B", [b"%d-%d" % (n, i) for i in range(batch)]).offsets[0])
            plain.append(store.put("P", b"%03d" % n + b"p" * 300).offset)
        assert store.wait_dispatched(10)
    return batches, plain


def spoil(root, at):
    with open(root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 10)


def mended(root):
    result = repair(root, dry_run=False, open_store=MessageStore.open)
    assert not result.left, [str(f) for f in result.left]
    assert not [f for f in verify(root) if f.severity != "note"]
    with MessageStore.open(root, readonly=True) as store:
        stones = [(r[3].topic, r[3].queue_offset) for r in store.log_records()
                  if r[0] == "msg" and "DAMAGED" in r[3].properties and r[3].topic != "DAMAGED"]
        return stones, [m.queue_offset for m in store.scan("P", 0)], store.max_offset("B", 0)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_rotten_queue_beside_batch_queues(tmp_path, batch):
    make(tmp_path, batch)
    with open(tmp_path / "consumequeue" / "P" / "0" / f"{0:020d}", "r+b") as file:
        file.seek(200)
        file.write(b"\xff" * 8)
    assert mended(tmp_path) == ([], [*range(30)], 30 * batch)


@pytest.mark.parametrize("nth", [1, 15, 28])
def test_a_damaged_record_beside_batches_leaves_one_tombstone(tmp_path, nth):
    _, plain = make(tmp_path)
    spoil(tmp_path, plain[nth] + 200)
    stones, offsets, end = mended(tmp_path)
    assert stones == [("P", nth)]
    assert (offsets, end) == ([*range(30)], 60)


@pytest.mark.parametrize("whole_head", [True, False])
def test_lost_batches_leave_tombstones_for_their_messages(tmp_path, whole_head):
    batches, _ = make(tmp_path, 5)
    spoil(tmp_path, batches[7] + (88 if whole_head else 0))      # the body, or size and magic code
    stones, offsets, end = mended(tmp_path)
    assert stones == [("B", 35)]
    assert (offsets, end) == ([*range(30)], 150)
    with MessageStore.open(tmp_path, readonly=True) as store:
        found = [(offset, m.queue_offset) for offset in (34, 35, 39, 40) for m in store.get("B", 0, offset, max_count=1)]
        assert found == [(n, n) for n in (34, 35, 39, 40)]
