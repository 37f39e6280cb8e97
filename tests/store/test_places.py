"""Parts of a store on other paths than under the root."""
import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 200}


def test_parts_may_lie_elsewhere(tmp_path):
    where = {"commitlog_path": tmp_path / "log" / "c", "consumequeue_path": tmp_path / "queues",
             "index_path": tmp_path / "i" / "x"}
    bodies = [b"%d" % i * 50 for i in range(900)]
    for _ in range(2):
        with MessageStore.open(tmp_path / "root", **where, **SMALL) as s:
            if not s.topics():
                s.put_many("T", bodies, keys="k")
            assert s.wait_dispatched(30)
            assert [bytes(m.body) for m in s.scan("T", 0)] == bodies and len(s.query_key("T", "k")) == 32
    assert len(list((tmp_path / "log" / "c").iterdir())) > 1 and list((tmp_path / "queues" / "T" / "0").iterdir())
    assert len(list((tmp_path / "i" / "x").iterdir())) > 1
    assert not (tmp_path / "root" / "commitlog").exists() and not (tmp_path / "root" / "index").exists()


def test_a_store_whose_log_is_elsewhere_is_read_without_a_write(tmp_path):
    where = {"commitlog_path": tmp_path / "log"}
    with MessageStore.open(tmp_path / "root", **where, **SMALL) as s:
        s.put_many("T", [b"one", b"two"], keys="k")
    assert not (tmp_path / "root" / "commitlog").exists()
    names = sorted(tmp_path.rglob("*"))
    with MessageStore.open(tmp_path / "root", readonly=True, **where) as s:
        assert [bytes(m.body) for m in s.scan("T", 0)] == [bytes(m.body) for m in s.scan()] == [b"one", b"two"]
        assert len(s.query_key("T", "k")) == 2
    assert sorted(tmp_path.rglob("*")) == names
    with pytest.raises(FileNotFoundError, match=r"commitlog_path does not exist.*elsewhere"):
        MessageStore.open(tmp_path / "root", readonly=True, commitlog_path=tmp_path / "elsewhere")
    with MessageStore.open(tmp_path / "root", readonly=True) as s:      # the writer has recorded where it is
        assert len(s.get("T", 0, 0)) == 2
    assert sorted(tmp_path.rglob("*")) == names
    (tmp_path / "root" / "config" / "storeOptions.json").unlink()
    with pytest.raises(FileNotFoundError, match="without its commitlog directory: if the log lies elsewhere"):
        MessageStore.open(tmp_path / "root", readonly=True)
