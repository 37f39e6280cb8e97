"""config/storeOptions.json: whoever opens a store completes it as its writer would."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore, backup, promote, restore, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import StoreRefusesToLoad, StoreStateError
from rmq_store.services.integrity.repair import repair
from rmq_store.upkeep.moving.messages import copy_messages

SIZES = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000, "consumequeue_file_size_bytes": 2000}
LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def told(root: Path) -> dict[str, object]:
    return json.loads((root / "config" / "storeOptions.json").read_text())["options"]


def faults(root: Path, **options: object) -> list[str]:
    return [str(f) for f in verify(root, **options) if f.severity != "note"]


def light(root: Path, name: str = "a") -> int:
    with MessageStore.open(root, readonly=True) as store:
        return sum(1 for _ in store.scan("%LMQ%" + name, 0))


def dead_store(tmp_path: Path, **options: object) -> Path:
    """A store whose process died before dispatch had entered the last four of seven messages."""
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "live", _io=io, **SIZES | LIGHT | options) as store:
        for _ in range(3):
            store.put("L", b"before", light_queues=["a"])
        store.wait_dispatched(5)
        io.hold("pwrite", "consumequeue")
        for _ in range(4):
            store.put("L", b"behind", light_queues=["a"])
        store.flush()
        shutil.copytree(tmp_path / "live", tmp_path / "dead")
        io.release()
    return tmp_path / "dead"


def restored(root: Path, tmp_path: Path) -> Path:
    backup(root, tmp_path / "backups")
    restore(tmp_path / "backups", tmp_path / "restored")
    return tmp_path / "restored"


def repaired(root: Path, tmp_path: Path) -> Path:
    with open(root / "consumequeue" / "L" / "0" / f"{0:020d}", "r+b") as file:
        file.seek(20)
        file.write(b"\xff" * 8)
    result = repair(root, dry_run=False, open_store=MessageStore.open)
    assert not result.left
    return root


def commanded(root: Path, tmp_path: Path, *arguments: str) -> Path:
    given = [str(root) if argument == "STORE" else argument for argument in arguments]
    subprocess.run([sys.executable, "-m", "rmq_store", *given], check=True, timeout=60,
                   capture_output=True, input=b"")
    return root


def copied(root: Path, tmp_path: Path) -> Path:
    copy_messages(root, tmp_path / "copy", as_is=True)
    return tmp_path / "copy"


@pytest.mark.parametrize("tool", [
    restored, repaired, copied,
    lambda root, tmp_path: commanded(root, tmp_path, "topics", "set", "STORE", "-t", "new"),
    lambda root, tmp_path: commanded(root, tmp_path, "put", "STORE", "-t", "L", "-k", "key"),
], ids=["backup", "repair", "copy", "topics", "put"])
def test_a_tool_without_options_completes_light_queues(tmp_path, tool):
    root = tool(dead_store(tmp_path), tmp_path)
    with MessageStore.open(root) as store:
        assert store.options.enable_lmq
        assert store.options.origin("enable_lmq") == "files"
        assert store.max_offset("L", 0) == 7
        place = store.put("L", b"next", light_queues=["a"]).queue_offset
        assert store.wait_dispatched(5)
        assert store.get("L", 0, place)[0].properties["INNER_MULTI_QUEUE_OFFSET"] == "7"
    assert light(root) == 8
    assert not faults(root)


def test_a_promoted_slave_completes_light_queues(tmp_path):
    root = dead_store(tmp_path)
    (root / "config" / "replica.json").write_text(
        '{"brokerAddress":"","haMasterAddress":"127.0.0.1:1","role":"slave","since":1}')
    promote(root)
    assert light(root) == 7


def test_the_file_is_written_before_the_first_put_and_not_again(tmp_path):
    file = tmp_path / "config" / "storeOptions.json"
    with MessageStore.open(tmp_path, **SIZES):
        before = file.stat()
    with MessageStore.open(tmp_path) as store:
        store.put("T", b"x")
    with MessageStore.open(tmp_path, readonly=True, **LIGHT):
        pass
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with MessageStore.open(tmp_path, **LIGHT):
        assert told(tmp_path)["enable_lmq"] is True


def test_an_open_that_dies_in_the_middle_leaves_the_file_whole(tmp_path):
    with MessageStore.open(tmp_path, **SIZES):
        before = told(tmp_path)
    io = ProbeIo(keep_bytes=False)
    io.fail("rename", errno=5, path=str(tmp_path / "config" / "storeOptions.json.tmp"))
    with pytest.raises(OSError, match="storeOptions"):
        MessageStore.open(tmp_path, _io=io, **LIGHT)
    assert told(tmp_path) == before
    with MessageStore.open(tmp_path) as store:
        assert not store.options.enable_lmq


def test_what_somebody_gives_is_stronger_and_a_profile_is_stronger_than_what_is_no_size(tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text("enable_lmq = true\nenable_multi_dispatch = true\nbatch_consumequeue_file_size_bytes = 9200\n")
    root = tmp_path / "s"
    with MessageStore.open(root, batch_consumequeue_file_size_bytes=4600, compat="4.9", **SIZES):
        pass
    with MessageStore.open(root, profile=str(profile)) as store:
        assert store.options.enable_lmq
        assert store.options.batch_consumequeue_file_size_bytes == 4600
        assert store.options.compat == "4.9"
        assert store.options.visibility == "committed"
    with MessageStore.open(root, compat="5.x", batch_consumequeue_file_size_bytes=46) as store:
        assert (store.options.compat, store.options.batch_consumequeue_file_size_bytes) == ("5.x", 46)


def test_sizes_that_no_file_tells_yet_are_those_of_the_writer(tmp_path):
    options = SIZES | {"batch_consumequeue_file_size_bytes": 4600}
    with MessageStore.open(tmp_path / "s", **options) as store:
        store.put("T", b"x")
    root = restored(tmp_path / "s", tmp_path)
    with MessageStore.open(root) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        store.put_inner_batch("B", [b"1", b"2"])
        store.put("T", b"x", keys="k")
        assert store.wait_dispatched(5)
    with MessageStore.open(root, **options) as store:
        assert store.max_offset("B", 0) == 2
        assert len(list(store.query_key("T", "k"))) == 1


def test_a_backup_of_batch_queues_takes_the_options_of_its_store(tmp_path):
    options = SIZES | {"batch_consumequeue_file_size_bytes": 4600}
    with MessageStore.open(tmp_path / "s", **options) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        for _ in range(10):
            store.put_inner_batch("B", [b"1", b"2"])
        store.wait_dispatched(5)
        store.backup(tmp_path / "backups")
    restore(tmp_path / "backups", tmp_path / "restored")
    with MessageStore.open(tmp_path / "restored", **options) as store:
        assert store.max_offset("B", 0) == 20


@pytest.mark.parametrize("change", [
    lambda content: content.update(version=2),
    lambda content: content["options"].update(rocks_queues=True),
    lambda content: content["options"].update(compat="6.x"),
], ids=["version", "option", "value"])
def test_what_a_later_release_wrote_is_refused_by_name_for_writing(tmp_path, change):
    with MessageStore.open(tmp_path, **SIZES) as store:
        store.put("T", b"x")
    file = tmp_path / "config" / "storeOptions.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StoreRefusesToLoad, match=r"version 2|rocks_queues|6\.x") as caught:
        MessageStore.open(tmp_path)
    assert "newer" in str(caught.value)
    with MessageStore.open(tmp_path, readonly=True) as store:
        assert len(store.get("T", 0, 0)) == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"version":1}', b"\xff", b'{"version":1,"options":7}'])
def test_a_damaged_file_is_named_and_readers_go_on(tmp_path, content):
    with MessageStore.open(tmp_path, **SIZES) as store:
        store.put("T", b"x")
    file = tmp_path / "config" / "storeOptions.json"
    file.write_bytes(content)
    with pytest.raises(StoreRefusesToLoad, match=r"storeOptions\.json"):
        MessageStore.open(tmp_path)
    with MessageStore.open(tmp_path, readonly=True) as store:
        assert len(store.get("T", 0, 0)) == 1
    assert any("storeOptions.json" in text for text in faults(tmp_path))
    assert not repair(tmp_path, dry_run=False, open_store=MessageStore.open).left
    with MessageStore.open(tmp_path) as store:
        assert len(store.get("T", 0, 0)) == 1
    assert any(path.read_bytes() == content for path in (tmp_path / ".salvage").iterdir() if path.is_file())


def test_parts_elsewhere_are_found_by_every_tool(tmp_path):
    root, logs = tmp_path / "s", tmp_path / "log disk"
    with MessageStore.open(root, commitlog_path=logs, consumequeue_path=tmp_path / "queues", index_path=tmp_path / "index",
                           **SIZES) as store:
        store.put("T", b"x", keys="k")
        store.wait_dispatched(5)
    assert not faults(root)
    with MessageStore.open(root, must_exist=True) as store:
        assert store.put("T", b"x").queue_offset == 1
    assert light(restored(root, tmp_path), "none") == 0
    assert "commitlog_path" not in told(tmp_path / "restored")
    with MessageStore.open(tmp_path / "restored", must_exist=True) as store:
        assert store.max_offset("T", 0) == 2


def test_a_copied_root_does_not_write_into_the_log_of_its_source(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, commitlog_path=tmp_path / "logs", **SIZES) as store:
        store.put("T", b"x")
    shutil.copytree(root, tmp_path / "copy")
    with pytest.raises(FileNotFoundError, match="commitlog_path"):
        MessageStore.open(tmp_path / "copy", must_exist=True)
    shutil.move(tmp_path / "logs", root / "commitlog")
    with MessageStore.open(root, must_exist=True) as store:        # somebody has moved it to its usual place
        assert store.max_offset("T", 0) == 1
    assert "commitlog_path" not in told(root)


def test_an_older_store_with_light_queues_has_no_file(tmp_path):
    root = dead_store(tmp_path)
    os.unlink(root / "config" / "storeOptions.json")
    assert light(repaired(root, tmp_path)) == 7


def test_turning_light_queues_off_is_logged_and_recorded(tmp_path, caplog):
    with MessageStore.open(tmp_path, **SIZES | LIGHT) as store:
        store.put("L", b"x", light_queues=["a"])
        assert store.wait_dispatched(5)
    with MessageStore.open(tmp_path, enable_lmq=False) as store:
        end = store.max_log_offset
        store.put("L", b"y")
    said = [r for r in caplog.records if getattr(r, "event", "") == "LIGHT_QUEUES_OFF"]
    assert len(said) == 1
    assert said[0].fields["offset"] == end
    with MessageStore.open(tmp_path) as store:
        assert not store.options.enable_lmq
        assert store.max_offset("%LMQ%a", 0) == 1
    assert not faults(tmp_path)
    with open(tmp_path / "consumequeue" / "L" / "0" / f"{0:020d}", "r+b") as file:
        file.write(b"\xff" * 8)
    assert not repair(tmp_path, dry_run=False, open_store=MessageStore.open).left
    assert light(tmp_path) == 1
    assert told(tmp_path)["enable_lmq"] is False


def test_a_repair_that_dies_does_not_turn_light_queues_on_again(tmp_path):
    with MessageStore.open(tmp_path, **SIZES | LIGHT) as store:
        store.put("L", b"x", light_queues=["a"])
    MessageStore.open(tmp_path, enable_lmq=False).close()
    with open(tmp_path / "consumequeue" / "L" / "0" / f"{0:020d}", "r+b") as file:
        file.write(b"\xff" * 8)
    io = ProbeIo(keep_bytes=False)
    io.fail("pwrite", errno=5, path=str(tmp_path / "checkpoint"))
    with pytest.raises(OSError, match="checkpoint"):
        repair(tmp_path, dry_run=False, open_store=MessageStore.open, _io=io)
    assert told(tmp_path)["enable_lmq"] is False
    assert not repair(tmp_path, dry_run=False, open_store=MessageStore.open).left
    assert told(tmp_path)["enable_lmq"] is False and light(tmp_path) == 1


def test_light_queues_that_rocketmq_made_later_get_entries(tmp_path):
    """This library had them off, and recorded that. A broker with enableLmq has had the store since."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as store:
        store.put("L", b"x")
    assert told(root)["enable_lmq"] is False
    record = (root / "config" / "storeOptions.json").read_bytes()
    with MessageStore.open(root, **LIGHT) as store:
        store.put("L", b"x", light_queues=["a"])
    (root / "config" / "storeOptions.json").write_bytes(record)
    with MessageStore.open(root) as store:              # nobody else has written
        assert not store.options.enable_lmq
    with open(root / "checkpoint", "r+b") as file:      # RocketMQ writes its own fields alone
        times = int.from_bytes(file.read(8), "big") + 1
        file.seek(0)
        file.write(times.to_bytes(8, "big"))
    (root / "abort").touch()
    with MessageStore.open(root, readonly=True) as store:
        assert store.options.enable_lmq
    with MessageStore.open(root) as store:
        store.put("L", b"y", light_queues=["a"])
        assert store.wait_dispatched(5)
    assert light(root) == 2 and told(root)["enable_lmq"] is True
    with MessageStore.open(root, enable_lmq=False) as store:
        pass
    with MessageStore.open(root) as store:              # and now this library was the last one
        assert not store.options.enable_lmq
    assert not faults(root)


def test_turning_them_off_waits_for_a_store_that_was_closed(tmp_path):
    root = dead_store(tmp_path)
    with pytest.raises(StoreStateError, match=r"enable_lmq.*not closed in order"):
        MessageStore.open(root, enable_lmq="false")
    with MessageStore.open(root):
        pass
    with MessageStore.open(root, enable_lmq="false"):
        pass
    assert light(root) == 7


def test_verify_holds_records_against_their_light_queues(tmp_path):
    with MessageStore.open(tmp_path, **SIZES | LIGHT) as store:
        for n in range(10):
            store.put("L", b"%d" % n, light_queues=["a", "b"], tags="t")
        assert store.wait_dispatched(5)
    assert not faults(tmp_path)
    file = tmp_path / "consumequeue" / "%LMQ%b" / "0" / f"{0:020d}"
    with open(file, "r+b") as opened:
        opened.seek(60)
        opened.write(bytes(20))
    found = [f for f in verify(tmp_path) if f.severity != "note"]
    assert {(f.kind, f.topic, f.queue_offset) for f in found} >= {("queue_missing", "%LMQ%b", 3)} or {f.kind for f in found}
    shutil.rmtree(file.parent.parent)
    found = [f for f in verify(tmp_path) if f.severity != "note"]
    assert ("queue_missing", "%LMQ%b") in {(f.kind, f.topic) for f in found}
    assert not repair(tmp_path, dry_run=False, open_store=MessageStore.open).left
    assert (light(tmp_path, "a"), light(tmp_path, "b")) == (10, 10)
