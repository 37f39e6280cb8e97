"""Losses of which something in the store still tells: messages that a recovery cut off, and the oldest file of the log."""
import shutil

import pytest

import rmq_store
from rmq_store import MessageStore
from rmq_store.services.integrity import manifest
from rmq_store.services.integrity.repair import repair
from rmq_store.services.integrity.undoing import undo
from tests.integrity.test_lost_files import SIZE, SMALL, filled, fix
from tests.integrity.test_undo import shape

pytestmark = pytest.mark.untraced       # files are changed behind the trace's back


def found(root):
    return [f for f in rmq_store.verify(root) if f.kind in ("salvaged", "log_oldest")]


def test_what_a_recovery_cut_off_is_said_until_it_is_restored(tmp_path, rmqstore):
    root = tmp_path / "s"
    puts = sorted(filled(root).values())
    at = puts[100][0]
    with open(root / "commitlog" / f"{at // SIZE * SIZE:020d}", "r+b") as file:
        file.seek(at % SIZE)
        file.write(b"\xff" * 90)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    MessageStore.open(root).close()
    copies = {path.name: path.stat().st_size for path in (root / ".salvage").iterdir()}
    notes = found(root)
    assert {f.path.rsplit("/", 1)[1]: f.size for f in notes} == copies and sum(f.found for f in notes) == len(puts) - 101
    code, out, _ = rmqstore("verify", root)
    assert code == 0 and f"`rmqstore repair --restore {root}`" in out and f"with {notes[0].found} whole messages" in out
    for dry in ((), ("--dry-run",)):
        code, out, _ = rmqstore("repair", root, *dry)
        assert code == 0 and f"salvaged {notes[0].path}" in out
    fix(root, restore=True)
    assert found(root) == []


def test_a_rest_without_a_whole_message_is_nothing_to_say(tmp_path):
    root = tmp_path / "s"
    at = max(filled(root).values())[0]
    with open(root / "commitlog" / f"{at // SIZE * SIZE:020d}", "r+b") as file:
        file.seek(at % SIZE)
        file.write(b"\xff" * 90)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    MessageStore.open(root).close()
    assert list((root / ".salvage").iterdir()) and list(rmq_store.verify(root)) == []


def test_the_oldest_file_is_lost(tmp_path, rmqstore):
    root = tmp_path / "s"
    puts = filled(root)
    rmq_store.scrub(root, bytes_per_s=None, make_manifests=True)
    (root / "commitlog" / f"{0:020d}").unlink()
    count = sum(at < SIZE for at, _, _ in puts.values())
    (finding,) = found(root)
    assert finding.offset == 0 and finding.size == SIZE and f"with {count} messages (" in finding.detail
    assert rmqstore("verify", root)[0] == 1
    before = shape(root)
    assert [s.kind for s in repair(root, dry_run=True).steps] == ["remove"] and shape(root) == before
    assert fix(root).left == [] and list(rmq_store.verify(root)) == []
    undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    assert shape(root) == before and len(found(root)) == 1


def test_cleaning_is_no_loss(tmp_path):
    root = tmp_path / "s"
    filled(root)
    rmq_store.scrub(root, bytes_per_s=None, make_manifests=True)
    assert manifest.listed(root)[0] == 0
    with MessageStore.open(root, **SMALL, manifest_enabled=False) as store:
        assert store.clean(0).log_files > 2
        low = store.min_log_offset
    assert low > 2 * SIZE and found(root) == [] == manifest.listed(root)


def test_what_rocketmq_cleaned_is_no_loss(tmp_path):
    root = tmp_path / "s"
    filled(root)
    rmq_store.scrub(root, bytes_per_s=None, make_manifests=True)
    (root / "commitlog" / f"{0:020d}").unlink()
    with open(root / "checkpoint", "r+b") as file:      # it writes its own fields alone: the seal does not fit them any more
        times = file.read(8)
        file.seek(0)
        file.write((int.from_bytes(times, "big") + 1).to_bytes(8, "big"))
    assert found(root) == []


@pytest.mark.parametrize("what", ["body", "first body", "header", "file and queues", "file", "file and queues, many topics"])
def test_light_queues_keep_their_offsets(tmp_path, what):
    """Each record says its places in light queues, so the records around a loss say which of them are lost."""
    root, many = tmp_path / "s", "many" in what
    light = {"enable_lmq": True, "enable_multi_dispatch": True}
    with MessageStore.open(root, **SMALL, **light) as store:
        puts = [store.put(f"T{i % (7 if many else 2)}", b"%d." % i + b"x" * 150, properties={
            "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b" if i % 3 else "%LMQ%a"}) for i in range(300)]
        assert store.wait_dispatched(timeout=60)
        before = {name: [int(bytes(m.body).split(b".")[0]) for m in store.scan(name, 0)] for name in ("%LMQ%a", "%LMQ%b")}
    gone = {0} if what == "first body" else {100}
    at = puts[min(gone)].offset
    path = root / "commitlog" / f"{at // SIZE * SIZE:020d}"
    if "file" in what:
        gone = {i for i, p in enumerate(puts) if p.offset // SIZE == 1}
        (root / "commitlog" / f"{SIZE:020d}").unlink()
    else:
        with open(path, "r+b") as file:
            file.seek(at % SIZE + (130 if "body" in what else 0))
            file.write(b"#" * 8)
    if "queues" in what:
        shutil.rmtree(root / "consumequeue")
    assert fix(root).left == []
    with MessageStore.open(root) as store:
        assert store.wait_dispatched(timeout=60)
        for name, numbers in before.items():
            assert store.max_offset(name, 0) == len(numbers)
            for n, i in enumerate(numbers):
                if i == 0 and i in gone:     # nothing is in front of it: the queue begins behind it
                    assert len(store.get(name, 0, n, 1)) == 0 and store.min_offset(name, 0) == 1
                    continue
                (message,) = store.get(name, 0, n, 1)
                assert (bytes(message.body).split(b".")[0] == b"%d" % i) == (i not in gone)
                assert i not in gone or "DAMAGED" in message.properties
                del message
