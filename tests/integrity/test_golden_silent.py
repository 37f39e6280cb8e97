"""Stores that the real RocketMQ wrote and closed are healthy: no tool may call them damaged, none may change them.

Without any option, as an operator has them on a disk: what their files do not tell nobody says.
"""
import hashlib
import json
import os
from pathlib import Path

import pytest

from rmq_store import MessageStore, scrub, verify
from rmq_store.cli.main import main
from rmq_store.errors import CorruptionError
from rmq_store.services.integrity.repair import repair
from tests.golden_store import cases, unpack

CLOSED = [name for name in cases() if "-crash-" not in name]


def content(root):
    """Every name below it, with its bytes, its kind and its time."""
    found = {}
    for place, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(place, name)
            data = b"" if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(root))] = hashlib.sha256(data).digest(), path.lstat().st_mode, path.lstat().st_mtime_ns
    return found


@pytest.mark.parametrize("name", CLOSED)
def test_tools_are_silent(name, tmp_path, capsys):
    store = unpack(name, tmp_path).store
    before = content(store)
    assert [f for f in verify(store) if f.severity != "note"] == []
    assert scrub(store, bytes_per_s=None).findings == []
    dry = repair(store, dry_run=True, open_store=MessageStore.open)
    assert dry.steps == [] and [f for f in dry.findings if f.severity != "note"] == []
    assert main(["stat", str(store), "--json"]) == 0 and json.loads(capsys.readouterr().out.splitlines()[0])
    assert content(store) == before


@pytest.mark.parametrize("name", CLOSED)
def test_repair_changes_nothing(name, tmp_path):
    store = unpack(name, tmp_path).store
    before = content(store)
    result = repair(store, dry_run=False, open_store=MessageStore.open)
    assert result.steps == [] and result.left == []
    after = content(store)
    assert after.pop("lock")[0] == before.pop("lock")[0]        # written and emptied again: its time has changed
    assert after == before


def test_extension_files_of_a_broker_that_switched_them_off(tmp_path):
    """They stay where they are; entries that led to new ones would have tags that such a broker does not find."""
    store = unpack("v4-cqext", tmp_path).store
    with MessageStore.open(store, readonly=True) as s:
        assert s.options.consumequeue_ext_enabled and s.options.consumequeue_ext_file_size_bytes == 4096
    with MessageStore.open(store, consumequeue_ext_enabled=False) as s:
        for topic in s.topics():
            for queue_id in s.queues(topic):
                s.put(topic, b"later", queue_id=queue_id, tags="a")
    with MessageStore.open(store) as s:
        assert not s.options.consumequeue_ext_enabled


def test_the_size_that_is_wrong_is_named(tmp_path):
    store = unpack("v4-cqext", tmp_path).store
    with pytest.raises(CorruptionError, match="4194304 bytes, as consumequeue_ext_file_size_bytes says"):
        MessageStore.open(store, consumequeue_ext_file_size_bytes=1 << 22)


def test_an_extension_file_of_another_length(tmp_path):
    """It is found by verify, and repair makes the queues again."""
    store = unpack("v4-cqext", tmp_path).store
    path = sorted((store / "consumequeue_ext").rglob("0*0"))[-1]
    with path.open("r+b") as file:
        file.truncate(100)
    assert "queue_file" in {f.kind for f in verify(store)}
    assert repair(store, dry_run=False, open_store=MessageStore.open).left == []
    assert [f for f in verify(store) if f.severity != "note"] == []
