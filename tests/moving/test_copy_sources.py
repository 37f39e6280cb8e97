"""What a copy does with its source: damage, changes and cleaning meanwhile, other stores at its path; and odd targets."""
import io
import json
import os
import shutil
import subprocess
import sys

import pytest

import rmq_store
from rmq_store import MessageStore, copy_messages, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.backup import source
from rmq_store.upkeep.moving import lines, messages
from tests.integrity.test_golden_silent import content
from tests.moving.conftest import SMALL, got, rows


def test_damage_is_not_passed_over(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        puts = [store.put("T", b"%d" % i * 20) for i in range(1000)]
    with open(tmp_path / "from" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(puts[100].offset + 95)
        file.write(b"\xff")
    with pytest.raises(errors.CorruptionError, match="wrong checksum") as caught:
        copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
    assert "repair" in "".join(caught.value.__notes__)
    assert len(rows(tmp_path / "to")) == 100


def test_what_a_removed_queue_held_stays_behind(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"old")
        store.delete_topics("T")
        store.put("T", b"new")
    for as_is in (False, True):
        assert copy_messages(tmp_path / "from", tmp_path / f"to{as_is}", as_is=as_is, **SMALL).left == {"removed": 1}
        assert got(tmp_path / f"to{as_is}", "T") == [b"new"]


def test_while_the_source_is_written(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        count = 0
        for _ in range(10):
            for _ in range(500):
                store.put("T", b"%d" % count * 10)
                count += 1
            copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    copy_messages(tmp_path / "from", tmp_path / "to", as_is=True)
    assert got(tmp_path / "to", "T") == [b"%d" % i * 10 for i in range(count)]


def test_the_same_directory_and_none(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with pytest.raises(errors.ConfigError, match="is the source"):
        copy_messages(tmp_path / "s", tmp_path / "link")
    with pytest.raises(FileNotFoundError):
        copy_messages(tmp_path / "none", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_source_that_another_store_has_replaced_is_not_taken_for_the_old_one(tmp_path):
    def made(count, what, root=tmp_path / "from"):
        shutil.rmtree(root, ignore_errors=True)
        with MessageStore.open(root, **SMALL) as store:
            for i in range(count):
                store.put("T", what + b"%06d" % i)

    made(100, b"old")
    copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
    for count, what in ((150, b"new"), (20, b"few"), (150, b"of another length")):
        made(count, what)
        with pytest.raises(errors.StoreStateError, match="another store is at this path"):
            copy_messages(tmp_path / "from", tmp_path / "to")
    assert len(rows(tmp_path / "to")) == 100
    (tmp_path / "from").rename(tmp_path / "moved")
    assert copy_messages(tmp_path / "moved", tmp_path / "to").copied == 150


def test_a_target_that_has_lived_on_and_was_cleaned_takes_what_has_come_since(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"one")
    copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
    with MessageStore.open(tmp_path / "to", **SMALL) as store:
        for _ in range(1000):
            store.put("U", b"x" * 200)
        store.flush()
        store.wait_dispatched(10)
        assert store.clean(0).log_files
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"two")
    assert copy_messages(tmp_path / "from", tmp_path / "to").copied == 1
    assert [b for _, _, b in rows(tmp_path / "to", ["T"])] == [b"two"]


def test_nothing_is_written_where_the_source_is_read(tmp_path):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"one")
    before = content(tmp_path / "from")
    for target, options in (("from/sub", {}), ("from/commitlog/sub", {}), ("from", {}),
                            ("to", {"commitlog_path": str(tmp_path / "from" / "commitlog")}),
                            ("to", {"index_path": str(tmp_path / "from" / "index")})):
        with pytest.raises(errors.ConfigError, match="is the source"):
            copy_messages(tmp_path / "from", tmp_path / target, **SMALL, **options)
    assert content(tmp_path / "from") == before and not (tmp_path / "to").exists()
    with pytest.raises(errors.ArgumentIllegal, match="is not set"):
        copy_messages(tmp_path / "from", "")


def test_a_copy_that_ends_just_before_the_target_is_ours_is_gone_on_with(tmp_path, monkeypatch):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        for i in range(10):
            store.put("T", b"%d" % i)
    real, opened = MessageStore.open, []

    def late(path, **options):
        if path == str(tmp_path / "to") and not opened:
            opened.append(path)
            copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
        return real(path, **options)

    monkeypatch.setattr(messages.MessageStore, "open", late)
    assert copy_messages(tmp_path / "from", tmp_path / "to", **SMALL).copied == 0
    assert opened and len(rows(tmp_path / "to")) == 10


def test_the_directories_above_a_new_target_are_on_the_device(tmp_path):
    """A target whose log does not begin at 0 is made in another way."""
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"x")
    io = ProbeIo(keep_bytes=False)
    copy_messages(tmp_path / "from", tmp_path / "a" / "to", as_is=True, since=0, _io=io, **SMALL)
    assert {str(tmp_path), str(tmp_path / "a")} <= {call.path for call in io.trace() if call.kind == "sync_dir"}


WRONG = [{"position": -5}, {"position": 1 << 70}, {"position": True}, {"position": None}, {"begin": "x"}, {"records": -1},
         {"met": 5}, {"met": "ab"}, {"met": [1]}, {"met": ["a", "b"]}, {"met": [None, None]}, {"phase": "waiting"},
         {"phase": []}, {"waiting": "x"}, {"waiting": 5, "levels": {}}, {"levels": {"x": 1}, "running": True}, {"seen": 5},
         {"settings": 5}, {"levels": [1], "running": True}, {"levels": {"1": None}, "running": True}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_journal_that_is_none_is_refused(tmp_path, wrong):
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        store.put("T", b"x")
    copy_messages(tmp_path / "from", tmp_path / "to", **SMALL)
    (path,) = (tmp_path / "to" / ".moving").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    with pytest.raises(errors.CorruptionError, match="how far a copy is"):
        copy_messages(tmp_path / "from", tmp_path / "to")
    assert len(rows(tmp_path / "to")) == 1


def test_what_is_cleaned_before_it_is_copied_is_told(tmp_path, monkeypatch, rmqstore):
    monkeypatch.setattr(source, "ROWS", 10)
    with MessageStore.open(tmp_path / "from", **SMALL) as store:
        for i in range(3000):
            store.put("T", b"%06d" % i * 10)
        store.flush()
        store.wait_dispatched(10)
        size = store.max_log_offset - store.max_log_offset % (1 << 16)

        def clean(done, end):
            if done < 1 << 16:
                store.clean(0)

        result = copy_messages(tmp_path / "from", tmp_path / "to", progress=clean, **SMALL)
        assert 0 < result.copied < 3000 and result.gone == size - (1 << 16)
        with open(tmp_path / "lines", "w+b") as out:
            assert lines.export_lines(tmp_path / "from", out).gone == 0
    assert copy_messages(tmp_path / "from", tmp_path / "to").gone == 0


def test_a_source_that_is_cut_or_cannot_be_read_kills_nobody(tmp_path):
    """A page of a map that is gone is a SIGBUS, and so is a bad sector. In a process of its own, which that would kill."""
    with MessageStore.open(tmp_path / "from", segment_size_bytes=1 << 20) as store:
        for i in range(5000):
            store.put("T", b"%06d" % i * 20)
    code = f"""
import os
from rmq_store import copy_messages, errors
from rmq_store.services.backup import source
source.ROWS, source.BYTES = 10, 4096
log = {str(tmp_path / "from" / "commitlog" / ("0" * 20))!r}
try:
    copy_messages({str(tmp_path / "from")!r}, {str(tmp_path / "to")!r}, segment_size_bytes=1 << 20,
                  progress=lambda done, end: os.truncate(log, 8192))
except errors.CorruptionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "the file was cut" in done.stdout, done
def test_an_empty_path_and_a_place_in_the_source_are_refused(mixed, tmp_path, monkeypatch):
    """An empty variable made a store in the current directory; a copy into the source wrote into what is only read."""
    monkeypatch.chdir(tmp_path)
    before = sorted(os.walk(tmp_path))
    for call in (lambda: copy_messages(mixed, ""), lambda: rmq_store.backup(mixed, ""), lambda: rmq_store.list_backups(""),
                 lambda: rmq_store.import_lines(io.BytesIO(b'{"topic":"T","body":"x"}'), "")):
        with pytest.raises(errors.ArgumentIllegal, match="path is '': name the directory"):
            call()
    (tmp_path / "link").symlink_to(mixed)
    for target in (mixed / "x", mixed / "commitlog", tmp_path / "link" / "y"):
        with pytest.raises(errors.ConfigError, match="or in it, where nothing is written: copy into another directory"):
            copy_messages(mixed, target)
    (tmp_path / "link").unlink()
    assert sorted(os.walk(tmp_path)) == before


def test_one_topic_may_be_given_as_it_is(mixed, tmp_path):
    """Its characters were taken for names."""
    assert copy_messages(mixed, tmp_path / "to", topics="Empty").copied == 1
    with pytest.raises(errors.ConfigError, match="topic 5: give names of topics"):
        copy_messages(mixed, tmp_path / "to", topics=[5])
