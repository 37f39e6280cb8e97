"""Index files of a broker with other sizes, killed before it had a key: nothing is lost with them, and nothing refuses."""
import os

import pytest

from rmq_store import MessageStore, backup, errors, restore, verify
from rmq_store.services.integrity.repair import repair

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000}
OURS = {"index_slots": 100, "index_entries_max": 1000}


def made(tmp_path, zeros, keys=False, written=b"", killed=False):
    """A store as a broker leaves it, without a record of options. zeros: size of the index file without an entry."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL, **OURS) as store:
        for i in range(50):
            store.put("T", b"%d" % i, **({"keys": f"k{i}"} if keys else {}))
    (root / "config" / "storeOptions.json").unlink()
    (root / "index").mkdir(exist_ok=True)
    path = root / "index" / "20991129014557841"
    path.write_bytes(written)
    os.truncate(path, zeros)
    if killed:
        (root / "abort").touch()
    return root, path


@pytest.mark.parametrize("written", [b"", bytes(36) + b"\0\0\0\1", bytes(10_000)], ids=["hole", "header", "zeros"])
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("zeros", [4_200_040, 40, 12_345], ids=str)
def test_every_open_and_tool_works(tmp_path, zeros, written, killed, rmqstore):
    root, path = made(tmp_path, zeros, written=written[:zeros], killed=killed)
    before = path.read_bytes()
    assert [f.kind for f in verify(root) if f.kind not in ("foreign_file", "not_closed")] == []
    assert repair(root, dry_run=True).steps == []
    for command in ("stat", "export", "readback"):
        assert rmqstore(command, root)[0] in ((0, 1) if killed else (0,)), command
    assert rmqstore("get", root, "-t", "T", "-c", 100)[0] == 0
    backup(root, tmp_path / "backups")
    restore(tmp_path / "backups", tmp_path / "back")
    for place in (root, tmp_path / "back"):
        with MessageStore.open(place, **OURS) as store:
            assert store.total("T", 0) == 50
            store.put("T", b"on", keys="new")
            store.wait_dispatched(10)
            assert len(store.query_key("T", "new")) == 1
        assert [f for f in verify(place) if f.severity != "note"] == []
        with MessageStore.open(place) as store:
            assert len(store.query_key("T", "new")) == 1
    assert path.read_bytes() == before


def test_beside_a_file_with_keys_it_tells_no_sizes(tmp_path):
    root, _ = made(tmp_path, 4_200_040, keys=True)
    with MessageStore.open(root) as store:
        assert (store.options.index_slots, store.options.index_entries_max) == (100, 1000)
        assert len(store.query_key("T", "k7")) == 1


def test_a_file_with_an_entry_is_no_such_file(tmp_path):
    root, path = made(tmp_path, 4_200_040)
    with path.open("r+b") as file:
        file.seek(3_000_000)
        file.write(b"\1")
    with pytest.raises(errors.CorruptionError, match="20991129014557841"):
        MessageStore.open(root, **OURS)
    assert [f.kind for f in verify(root, **OURS) if f.severity != "note"] == ["index_file"]
