"""The geometry of index files is inferred where it can be: golden files, and our own at open."""
import os

import pytest

from rmq_store import MessageStore
from rmq_store.errors import RmqStoreError
from rmq_store.queues.index.geometry import find_geometry

CASES = ["v4-plain", "v4-roll", "v5-plain", "v5-roll"]


@pytest.mark.parametrize("case", CASES)
def test_golden_files_tell_their_geometry(golden, case):
    made = golden(case)
    for path in sorted((made.store / "index").iterdir()):
        data = path.read_bytes()
        found = find_geometry(lambda at, n, data=data: data[at:at + n], len(data))
        assert found == (int(made.config["maxHashSlotNum"]), int(made.config["maxIndexNum"]))


def test_a_store_opens_without_being_told_its_sizes(tmp_path):
    sizes = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "index_slots": 77, "index_entries_max": 555}
    with MessageStore.open(tmp_path / "s", **sizes) as s:
        s.put_many("T", [b"x"] * 100, keys="a b c")
        s.wait_dispatched(10)
    with MessageStore.open(tmp_path / "s") as s:
        assert {name: s.options[name] for name in sizes} == sizes and s.options.origin("index_slots") == "files"
        assert len(s.query_key("T", "b")) == 32


@pytest.mark.parametrize(("options", "words"), [
    ({"segment_size_bytes": 1 << 17}, "131072 bytes, as segment_size_bytes says, found 65536"),
    ({"consumequeue_file_size_bytes": 4000}, "4000 bytes, as consumequeue_file_size_bytes says, found 2000"),
    ({"index_slots": 60, "index_entries_max": 1000}, "20280 bytes, as index_slots and index_entries_max say, found 20440")])
def test_a_size_that_is_not_the_files_is_named(tmp_path, options, words):
    sizes = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
    with MessageStore.open(tmp_path / "s", **sizes) as store:
        store.put("T", b"x", keys="k")
    with pytest.raises(RmqStoreError, match=words), MessageStore.open(tmp_path / "s", **sizes | options):
        pass
    with MessageStore.open(tmp_path / "s") as store:        # and nothing was changed
        assert [m.keys for m in store.query_key("T", "k")] == ["k"]


def test_damage_gives_no_geometry(tmp_path):
    for data in (b"", bytes(40), bytes(1000), os.urandom(4096), b"\xff" * 4096):
        assert find_geometry(lambda at, n, data=data: data[at:at + n], len(data)) is None


def test_a_slot_that_leads_behind_the_last_entry_of_a_full_file(tmp_path):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 16, index_slots=4, index_entries_max=6) as store:
        for i in range(10):
            store.put("T", b"x", keys=f"k{i}")
    data = bytearray(sorted((tmp_path / "s" / "index").iterdir())[0].read_bytes())
    for slot in range(4):
        for count in (6, 7, 0x7FFFFFFF):
            broken = data[:40 + 4 * slot] + count.to_bytes(4, "big") + data[44 + 4 * slot:]
            assert find_geometry(lambda at, n, broken=broken: broken[at:at + n], len(data)) in (None, (4, 6))


def test_zeros_that_are_looked_for_among_zeros():
    """An index whose last entry leads to the log's first record looks for that offset: 0. Each look has to be a short one."""
    data = bytearray(1 << 20)
    data[36:40] = (3).to_bytes(4, "big")
    looks = 0

    def read(at, n):
        nonlocal looks
        looks += n
        return bytes(data[at:at + n])

    assert find_geometry(read, len(data)) is None
    assert looks < 16 * len(data)
