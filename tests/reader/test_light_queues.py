"""Queues of upstream's LmqDispatch, as a Java broker leaves them: entries that lead to records of other topics."""
import struct

import pytest

from rmq_store import MessageStore
from rmq_store.services.integrity.verification import verify

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
LISTS = ["%LMQ%a", "%LMQ%b,%LMQ%a", "%LMQ%ab,%LMQ%a,%LMQ%c", "%LMQ%ab", "%LMQ%", "%LMQ%a,%LMQ%ab"]


@pytest.fixture
def root(tmp_path):
    """Record i is in the light queues of LISTS[i]; each light queue that a case names has an entry for each record."""
    with MessageStore.open(tmp_path, **SMALL) as s:
        put = [s.put("T", b"%d" % i, properties={"INNER_MULTI_DISPATCH": names})
               for i, names in enumerate(LISTS)]
    for name in ("%LMQ%a", "%LMQ%ab", "%LMQ%x"):
        path = tmp_path / "consumequeue" / name / "0" / f"{0:020d}"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(struct.pack(">qiq", r.offset, r.size, 0) for r in put).ljust(2000, b"\0"))
    return tmp_path


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize(("name", "its"), [("%LMQ%a", [0, 1, 2, 5]), ("%LMQ%ab", [2, 3, 5]), ("%LMQ%x", [])])
def test_only_what_a_record_lists_is_served(root, name, its, readonly):
    with MessageStore.open(root, readonly=readonly, **SMALL) as s:
        assert [int(bytes(m.body)) for m in s.get(name, 0, 0)] == its


def test_verify_names_entries_of_other_queues(root):
    wrong = {name: 0 for name in ("%LMQ%a", "%LMQ%ab", "%LMQ%x")}
    for found in verify(root, **SMALL):
        for name in wrong:
            wrong[name] += f"{name}/0" in str(found)
    assert wrong == {"%LMQ%a": 1, "%LMQ%ab": 2, "%LMQ%x": 1}     # runs of entries


def test_what_is_put_to_a_light_queue_itself(tmp_path):
    for life in range(3):
        with MessageStore.open(tmp_path, **SMALL) as s:
            assert s.put("%LMQ%own", b"%d" % life).queue_offset == life
            assert s.wait_dispatched(10)
            assert [bytes(m.body) for m in s.get("%LMQ%own", 0, 0)] == [b"%d" % i for i in range(life + 1)]
        assert list(verify(tmp_path, **SMALL)) == []
    (tmp_path / "abort").touch()
    with MessageStore.open(tmp_path, **SMALL) as s:
        assert len(s.get("%LMQ%own", 0, 0)) == 3


def test_a_crash_leaves_what_leads_into_the_log(root):
    """Nobody here makes those entries again."""
    (root / "abort").touch()
    with MessageStore.open(root, **SMALL) as s:
        assert [int(bytes(m.body)) for m in s.get("%LMQ%a", 0, 0)] == [0, 1, 2, 5]
