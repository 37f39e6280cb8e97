"""What is said of a directory that cannot be a store, may not be looked at, or has something in it that is not the store's."""
import shutil
import subprocess
import sys

import pytest

from rmq_store import MessageStore, errors, verify
from tests.first_hour import nobody

SMALL = {"segment_size_bytes": 1 << 16, "index_slots": 100, "index_entries_max": 1000, "consumequeue_file_size_bytes": 2000}
OPEN = """
import sys
from rmq_store import MessageStore
try:
    MessageStore.open(sys.argv[1], readonly=sys.argv[2] == "ro")
except Exception as error:
    print(type(error).__name__, error)
"""


def make(root):
    with MessageStore.open(root, **SMALL) as store:
        store.put("T", b"x", keys="k")
        store.put("T", b"y", delay_level=18)
        store.offsets.commit("G", "T", 0, 0)
        store.topic_table.add("T")
        store.wait_dispatched(10)
    return root


@pytest.mark.parametrize("part", [".", "commitlog", "commitlog/0*", "index", "index/2*", "consumequeue/T/0", "config"])
@pytest.mark.parametrize("how", ["ro", "rw", "verify", "stat", "scrub"])
def test_what_is_closed_to_this_user_is_permission_denied(part, how):
    with nobody.directory() as place:
        root = make(place / "s")
        nobody.give(place)
        (shut,) = root.glob(part) if "*" in part else [root / part]
        shut.chmod(0)
        try:
            done = nobody.run("-m", how, root) if how not in ("ro", "rw") else nobody.run("-c", OPEN, root, how)
        finally:
            shut.chmod(0o755)
    if how in ("ro", "rw"):
        assert done.stdout.startswith("PermissionError [Errno 13] permission denied: it belongs to user "), done
    elif how != "scrub" or "config" not in part:        # which it does not read
        assert done.returncode == 3 or (how == "scrub" and done.returncode == 0), done
    said = done.stdout + done.stderr
    assert "not a message store" not in said and "device" not in said and "Traceback" not in said
    assert done.returncode == 0 or (str(shut) in said and "its mode is 000" in said)
    assert done.returncode == 0 or ("this process is that user: run chmod u+rw" in said and "the owner" not in said)


@pytest.mark.parametrize("how", ["closed", "file", "commitlog_is_a_file"])
@pytest.mark.parametrize("readonly", [False, True])
def test_what_cannot_be_a_store(tmp_path, how, readonly):
    root = tmp_path / "s"
    if how == "file":
        root.write_text("x")
    elif how == "commitlog_is_a_file":
        root.mkdir()
        (root / "commitlog").write_text("x")
    else:
        (tmp_path / "up").write_text("x")
        root = tmp_path / "up" / "s"
    with pytest.raises(NotADirectoryError) as error:
        MessageStore.open(root, readonly=readonly, **SMALL)
    if how == "file":
        assert "is a file, and a store is a directory" in str(error.value)


@pytest.mark.parametrize(("name", "readonly"), [(name, readonly) for name in (
    "commitlog/00000000000000000099", "index/22220101000000000", "consumequeue/T/0/00000000000000000040")
    for readonly in (False, True)])
def test_a_foreign_file_is_to_be_moved_out(tmp_path, name, readonly):
    root = make(tmp_path / "s")
    (root / name).write_bytes(b"x" * 99)
    with pytest.raises(errors.CorruptionError, match="does not belong to the store, move it away") as error:
        MessageStore.open(root, readonly=readonly, **SMALL)
    assert str(error.value.path) == str(root / name) and "99 bytes" in str(error.value)
    (root / name).unlink()
    (root / "commitlog" / "notes.txt").write_text("x")
    (root / "index" / "notes.txt").write_text("x")
    assert [(f.kind, "move it away" in f.detail) for f in verify(root, **SMALL) if f.kind != "not_closed"] == [
        ("foreign_file", True), ("foreign_file", True)]


@pytest.mark.parametrize("name", ["delayOffset.json", "consumerOffset.json", "topics.json", "subscriptionGroup.json"])
def test_a_broken_file_under_config_is_a_finding(tmp_path, name):
    root = make(tmp_path / "s")
    assert not list(verify(root))
    for damaged in (name, name + ".bak"):
        (root / "config" / damaged).write_text("{")
    (finding,) = verify(root)
    assert (finding.kind, finding.severity, finding.path) == ("config_file", "finding", str(root / "config" / name))
    assert "its .bak file is unreadable too: correct the JSON by hand" in finding.detail
    (root / "config" / (name + ".bak")).write_text('{"offsetTable":{}}')
    assert not list(verify(root))


def test_an_extra_that_is_missing_is_named(tmp_path):
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError('no', name='prometheus_client')")
    done = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import rmq_store.metrics",
                           tmp_path], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == ("ModuleNotFoundError: rmq_store.metrics needs prometheus_client: "
                                            "pip install 'rmq_store[metrics]'")


def test_a_large_new_store_says_so_once(tmp_path, caplog):
    def said():
        found = [r.getMessage() for r in caplog.records if r.event == "SIZES_LARGE"]
        caplog.clear()
        return found

    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20):
        assert said() == []
    with MessageStore.open(tmp_path / "dev", profile="dev") as store:
        assert said() == [] and store.options.segment_size_bytes == 16 << 20
        store.put("T", b"x", keys="k", wait=True)
        store.wait_dispatched(10)
        used = sum(p.stat().st_blocks * 512 for p in (tmp_path / "dev").rglob("*"))
        assert used < 38 << 20
    if shutil.disk_usage(tmp_path).free < 20 << 30:
        pytest.skip("sizes are cut to a disk as full as this one")
    with MessageStore.open(tmp_path / "large"):
        (line,) = said()
        assert "2,048 MiB of disk" in line and "400 MiB more" in line and "profile='dev'" in line
    shutil.rmtree(tmp_path / "s")
    with MessageStore.open(tmp_path / "large"), MessageStore.open(tmp_path / "large", readonly=True):
        assert said() == []
