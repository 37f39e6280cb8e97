"""A log that has lost its end gives queue offsets of lost messages to new ones: every group gets these, too."""
import errno
import os
import time

import pytest

from rmq_store import MessageStore
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.integrity.repair import repair

pytestmark = pytest.mark.untraced       # files are changed behind the trace's back
BODY = b"x" * 20_000
LOST = {"commitlog_loss_accepted": True}


def cut(root):
    os.truncate(sorted((root / "commitlog").iterdir())[-1], 100)
    repair(root, dry_run=False, open_store=MessageStore.open)


def without_the_newest_file(root):
    sorted((root / "commitlog").iterdir())[-1].unlink()


def rotten_after_a_kill(root):
    (root / "abort").touch()
    newest = sorted((root / "commitlog").iterdir())[-1]
    with open(newest, "r+b") as file:
        file.write(bytes(4000))


def consumed(store, group, topic):
    found = []
    with store.consumer(group, topic) as consumer:
        while batch := consumer.poll(timeout=0.2):
            found += [bytes(message.body) for message in batch]
            batch.ack()
    return found


@pytest.mark.parametrize("more", [0, 1, 400])
@pytest.mark.parametrize("lose", [cut, without_the_newest_file, rotten_after_a_kill])
def test_a_group_gets_what_is_put_behind_a_lost_end(tmp_path, caplog, lose, more):
    """Also when nobody consumes before more than was lost has been put, and the store was opened twice."""
    root = tmp_path / "s"
    with MessageStore.open(root, profile="test") as store:
        for n in range(300):
            store.put("T", b"%06d" % n + BODY)
        assert store.wait_dispatched(10)
        assert len(consumed(store, "G", "T")) == 300
        assert len(consumed(store, "other", "T")) == 300
        store.offsets.commit("behind", "T", 0, 3)
    lose(root)
    with MessageStore.open(root, **LOST) as store:
        end = store.max_offset("T", 0)
        assert end < 300
        turned = {(r.fields["group"], r.fields["offset"], r.fields["end"]) for r in caplog.records
                  if r.event == "OFFSET_TURNED_BACK"}
        assert lose is cut or turned == {("G", 300, end), ("other", 300, end)}
    with MessageStore.open(root) as store:
        assert store.offsets.table()["T", "G"] == {0: end} and store.offsets.table()["T", "behind"] == {0: 3}
        bodies = [b"new%d" % n for n in range(more)]
        for body in bodies:
            store.put("T", body, wait=True)
        assert store.wait_dispatched(10)
        assert consumed(store, "G", "T") == bodies


def test_offsets_that_are_not_beyond_an_end_stay_and_write_nothing(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, profile="test") as store:
        store.put("T", b"x")
        store.offsets.commit("G", "T", 0, 1)
        store.offsets.commit("G", "unknown", 0, 50)         # a topic that comes later, as by an import
    file = root / "config" / "consumerOffset.json"
    before = file.read_bytes(), file.stat().st_mtime_ns
    with MessageStore.open(root) as store:
        assert store.offsets.query("G", "unknown", 0) == 50 and store.offsets.query("G", "T", 0) == 1
        assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_a_light_queue_whose_end_is_lost(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, profile="test", enable_lmq=True, enable_multi_dispatch=True) as store:
        for n in range(300):
            store.put("T", b"%06d" % n + BODY, light_queues=["a"])
        assert store.wait_dispatched(10)
        store.offsets.commit("%LMQ%g", "%LMQ%a", 0, 300)
    without_the_newest_file(root)
    with MessageStore.open(root, **LOST) as store:
        end = store.max_offset("%LMQ%a", 0)
        assert store.offsets.query("%LMQ%g", "%LMQ%a", 0) == end < 300


def test_a_delayed_message_put_behind_a_lost_end_is_delivered(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, profile="test", delay_levels="1s") as store:
        for n in range(150):
            store.put("T", b"%06d" % n + BODY, delay_level=1)
        assert store.wait_for_message("T", 0, 149, timeout=30)
    for file in sorted((root / "commitlog").iterdir())[1:]:
        file.unlink()
    with MessageStore.open(root, **LOST) as store:
        end = store.max_offset("T", 0)
        store.put("T", b"new", delay_level=1)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and b"new" not in (found := [bytes(m.body) for m in store.get("T", 0, end, 32)]):
            store.wait_for_message("T", 0, end + len(found), timeout=1)
        assert b"new" in found


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_an_open_that_cannot_read_the_offsets_for_a_want_is_none(tmp_path, monkeypatch, code):
    """Or the file is read later, when the offsets of lost messages are those of new ones."""
    root = tmp_path / "s"
    with MessageStore.open(root, profile="test") as store:
        for n in range(300):
            store.put("T", b"%06d" % n + BODY)
        store.offsets.commit("G", "T", 0, 300)
    without_the_newest_file(root)

    def lacking(*_):
        raise OSError(code, os.strerror(code), "consumerOffset.json")

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFile, "load", lacking)
        with pytest.raises(OSError, match="consumerOffset"):
            MessageStore.open(root, **LOST)
    with MessageStore.open(root, **LOST) as store:
        assert store.offsets.query("G", "T", 0) == store.max_offset("T", 0) < 300
