"""A log in one directory that is not given, not mounted, or half of the log: an open for writing changes nothing."""
import errno
import os
import shutil
import time

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.cli.main import main
from rmq_store.codec._layout import CHECKPOINT_AT_FLUSHED
from rmq_store.config import recorded
from rmq_store.services.integrity.repair import repair
from rmq_store.status import GetStatus
from tests.dirs.conftest import SEGMENT, SIZES, content, numbers
from tests.soon import until

CURE = "name all of them in commitlog_path; .*mount it; .*commitlog_loss_accepted=True"


@pytest.fixture(autouse=True)
def unrecorded(monkeypatch):
    """The stores of this file are as those of RocketMQ and of older releases: they do not record where their log is."""
    monkeypatch.setattr(recorded, "DIRECTORIES", ())


@pytest.fixture(params=["closed", "crashed"])
def ending(request):
    return request.param


def made(place, ending, count=60, seal=True, **options):
    """A store whose log is in place/disk/commitlog. seal: with the offset that only this library writes into the checkpoint."""
    root = place / "root"
    with MessageStore.open(root, **{**SIZES, "commitlog_path": str(place / "disk" / "commitlog"), **options}) as store:
        for i in range(count):
            store.put("T", i.to_bytes(4, "big") + bytes(3000), keys=f"k{i}")
        store.put("Gone", b"deleted before")
        store.wait_dispatched(10)
        store.delete_topics("Gone")
    if ending == "crashed":
        (root / "abort").touch()
    if not seal:
        unseal(root)
    return root


def unseal(root):
    with open(root / "checkpoint", "r+b") as file:
        file.seek(CHECKPOINT_AT_FLUSHED)
        file.write(bytes(16))


def refused(place, root, match=CURE, **options):
    before, directories = content(place), sorted(path for path in place.rglob("*") if path.is_dir())
    with pytest.raises(errors.LogDirectoryMissing, match=match) as caught:
        MessageStore.open(root, **SIZES, **options)
    assert content(place) == before
    return caught.value, directories


def whole(root, log, count=60):
    with MessageStore.open(root, **SIZES, commitlog_path=str(log)) as store:
        assert numbers(store.scan("T", 0)) == list(range(count)) and len(store.query_key("T", "k5")) == 1
        assert store.get("Gone", 0, 0).status == GetStatus.NO_MESSAGE_IN_QUEUE
        assert store.put("T", b"on", wait=True).queue_offset == count


@pytest.mark.parametrize("seal", [True, False])
def test_the_option_is_forgotten(tmp_path, ending, seal):
    root = made(tmp_path, ending, seal=seal)
    error, directories = refused(tmp_path, root)
    assert error.path == str(root / "commitlog") and "checkpoint or queues" in str(error)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_dir()) == directories, "the directory is not made, either"
    (root / "commitlog").mkdir()        # by an open of an older release
    assert "files up to" in str(refused(tmp_path, root)[0])
    whole(root, tmp_path / "disk" / "commitlog")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("seal", [True, False])
def test_the_disk_is_not_mounted(tmp_path, ending, there, seal):
    root, log = made(tmp_path, ending, seal=seal), tmp_path / "disk" / "commitlog"
    log.rename(tmp_path / "kept")
    if there:
        log.mkdir()
    refused(tmp_path, root, commitlog_path=str(log))
    shutil.rmtree(log, ignore_errors=True)
    (tmp_path / "kept").rename(log)
    whole(root, log)


def test_queues_alone_tell_of_a_closed_log(tmp_path):
    """As where the checkpoint is lost as well."""
    root = made(tmp_path, "closed")
    (root / "checkpoint").unlink()
    refused(tmp_path, root)
    (root / "commitlog").mkdir()
    refused(tmp_path, root)


@pytest.mark.parametrize("seal", [True, False])
def test_one_of_two_directories_is_given(two, ending, seal):
    """Two files, so that there is no hole between them to see."""
    with two.open() as store:
        count = 0
        while store.stats()["wrote"] < SEGMENT * 3 // 2:
            store.put("T", count.to_bytes(4, "big") + bytes(3000))
            count += 1
        last = time.time_ns() // 1_000_000      # without the seal, a newer time in the checkpoint tells of the second file
        until(lambda: time.time_ns() // 1_000_000 > last)
        store.put("T", count.to_bytes(4, "big"))
        count += 1
    for log in two.logs:            # those that were made ahead would be a hole
        for path in log.iterdir():
            if int(path.name) >= 2 * SEGMENT:
                path.unlink()
    assert two.files() == {"a": [0], "b": [1]}
    if ending == "crashed":
        (two.root / "abort").touch()
    if not seal:
        unseal(two.root)
    error, _ = refused(two.place, two.root, commitlog_path=str(two.logs[0]))
    assert f"files up to {SEGMENT:020d}" in str(error) and error.offset == SEGMENT
    with two.open() as store:
        assert numbers(store.scan("T", 0)) == list(range(count))


def test_a_reader_says_it_and_writes_nothing(two, caplog):
    two.fill(30)
    for log in two.logs:
        for path in log.iterdir():
            if int(path.name) >= 2 * SEGMENT:
                path.unlink()
    before = content(two.place)
    with MessageStore.open(two.root, readonly=True, **SIZES, commitlog_path=str(two.logs[0])) as store:
        assert "LOG_FILES_MISSING" in {getattr(r, "event", "") for r in caplog.records}
        assert store.max_offset("T", 0) == 30
        found = numbers(store.scan("T", 0))
        assert 0 < len(found) < 30 and found == list(range(len(found)))
        assert store.get("T", 0, 29).status == GetStatus.MESSAGE_WAS_REMOVING
    with pytest.raises(errors.LogDirectoryMissing, match="files up to"):
        MessageStore.open(two.root, readonly=True, follow=True, **SIZES, commitlog_path=str(two.logs[0]))
    assert content(two.place) == before


def derived(root):
    """The files that an open removes where the log is lost."""
    return {name: data for name, data in content(root).items() if name.split("/")[0] in ("consumequeue", "index")}


def copied(root):
    """The copies of such files, one for each copy."""
    return [derived(copy) for copy in sorted((root / ".salvage").glob("queues-*"))]


def test_lost_for_good_and_accepted(tmp_path, ending, caplog):
    root = made(tmp_path, ending)
    shutil.rmtree(tmp_path / "disk")
    before = derived(root)
    with MessageStore.open(root, commitlog_loss_accepted=True, **SIZES) as store:
        assert list(store.scan()) == [] and store.topics() in ([], ["T"])
        assert store.put("T", b"on").queue_offset == 0
    assert len(before) > 1 and copied(root) == [before], "nothing is removed without a copy"
    assert str(root / ".salvage") in next(r.getMessage() for r in caplog.records if r.event == "QUEUES_COPIED")
    with MessageStore.open(root, **SIZES) as store:     # once is enough
        assert store.max_offset("T", 0) == 1
    assert copied(root) == [before]


def test_a_queue_without_a_log_is_copied_even_if_nothing_tells_that_there_was_one(tmp_path):
    root = made(tmp_path, "crashed")
    shutil.rmtree(tmp_path / "disk")
    (root / "commitlog").mkdir()
    (root / "checkpoint").unlink()
    before = derived(root)
    MessageStore.open(root, **SIZES).close()
    assert len(before) > 1 and copied(root) == [before]


@pytest.mark.parametrize("spoil", ["killed", "full"])
def test_an_open_that_accepts_a_loss_and_is_broken_off_leaves_queues_or_a_copy(tmp_path, ending, spoil):
    """Whatever call it ends with, of which some are tried: killed, or no space is left."""
    root = made(tmp_path, ending, count=6)
    shutil.rmtree(tmp_path / "disk")
    before = derived(root)
    kept = tmp_path / "kept"
    root.rename(kept)
    for n in range(1 + (ending == "crashed"), 300, 13 if spoil == "killed" else 5):
        shutil.copytree(kept, root)
        probe = ProbeIo(keep_bytes=False)
        if spoil == "killed":
            probe.freeze("mutate|sync", n)
        else:
            probe.fail("pwrite|fallocate|mkdir", n, errno.ENOSPC, sticky=True)
        try:
            MessageStore.open(root, commitlog_loss_accepted=True, _io=probe, **SIZES).close()
        except (errors.RmqStoreError, OSError):
            pass
        assert before in [derived(root), *copied(root)]
        if not (probe.frozen or probe.hits):
            break
        with MessageStore.open(root, commitlog_loss_accepted=True, **SIZES) as store:
            assert store.put("T", b"on").queue_offset == 0
        assert before in copied(root) and not list((root / ".salvage").glob("*.tmp"))
        shutil.rmtree(root)
    assert n > 5 and not (probe.frozen or probe.hits)


def test_commands_and_tools_refuse(tmp_path, capsys):
    root = made(tmp_path, "closed")
    for made_by_others in (False, True):
        if made_by_others:
            (root / "commitlog").mkdir()
        (tmp_path / "lines").write_text("x\n")
        before = content(tmp_path)
        assert main(["put", str(root), str(tmp_path / "lines"), "-t", "T"]) == 2
        assert main(["stat", str(root)]) != 0 or made_by_others
        assert main(["verify", str(root)]) == (4 if made_by_others else 3)
        with pytest.raises((errors.LogDirectoryMissing, FileNotFoundError)):
            repair(root, dry_run=False)
        with pytest.raises((errors.LogDirectoryMissing, FileNotFoundError)):
            rmq_store.backup(root, tmp_path / "backups")
        with pytest.raises((errors.LogDirectoryMissing, FileNotFoundError)):
            rmq_store.copy_messages(root, tmp_path / "copy")
        with pytest.raises((errors.LogDirectoryMissing, FileNotFoundError)):
            rmq_store.copy_messages(root, tmp_path / "copy", as_is=True)
        assert content(tmp_path) == before and not (tmp_path / "copy").exists() and not (tmp_path / "backups").exists()
    capsys.readouterr()
    whole(root, tmp_path / "disk" / "commitlog")


def test_a_new_store_and_an_empty_one_open(tmp_path):
    MessageStore.open(tmp_path / "s", **SIZES).close()
    (tmp_path / "s" / "abort").touch()
    MessageStore.open(tmp_path / "s", **SIZES).close()
    root = tmp_path / "configured"
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text("{}")
    with MessageStore.open(root, commitlog_path=str(tmp_path / "d" / "commitlog"), **SIZES) as store:
        store.put("T", b"x")


def test_an_entry_that_leads_beyond_is_damage_and_no_disk(tmp_path, ending):
    """The checkpoint tells that the log never reached there; of a broker that crashed, a single entry is not enough."""
    root = made(tmp_path, ending, seal=ending == "closed")
    (queue,) = (path for path in (root / "consumequeue" / "T" / "0").iterdir() if int(path.name) == 0)
    with open(queue, "r+b") as file:
        file.seek(59 * 20)
        file.write((40 * SEGMENT).to_bytes(8, "big"))
    with MessageStore.open(root, **SIZES, commitlog_path=str(tmp_path / "disk" / "commitlog")) as store:
        assert numbers(store.scan("T", 0)) == list(range(60))


def test_files_that_took_turns_in_two_directories_name_the_option(two, caplog, monkeypatch):
    """Of four files each directory has every other one: given alone, it has a gap."""
    two.fill(80)
    assert min(map(len, two.files().values())) >= 2
    before = content(two.place)
    monkeypatch.chdir(two.place)
    alone = {**SIZES, "commitlog_path": os.path.relpath(two.logs[0])}
    for readonly in (False, True):
        with pytest.raises(errors.LogDirectoryMissing, match="name all of them in commitlog_path") as raised:
            MessageStore.open(two.root, readonly=readonly, **alone)
        assert str(two.logs[0]) in str(raised.value) and raised.value.offset == SEGMENT
    two.lose("b")
    with MessageStore.open(two.root, readonly=True, **two.options()) as store:      # as the error says
        assert "LOG_FILES_MISSING" in {getattr(r, "event", "") for r in caplog.records}
        found = numbers(store.scan("T", 0))
        assert 0 < len(found) < 80 and found == sorted(found) and store.max_offset("T", 0) == 80
    two.bring_back("b")
    for must_exist in (False, True):
        with pytest.raises((OSError, errors.LogDirectoryMissing), match="commitlog_path"):
            MessageStore.open(two.root, readonly=must_exist, must_exist=must_exist, **SIZES)
    assert content(two.place) == before


def test_a_refused_open_leaves_no_directory(two):
    two.fill(80)
    two.logs[0].rename(two.place / "away")
    two.logs[0].mkdir()
    for log in two.logs:
        shutil.rmtree(f"{log}.alloc", ignore_errors=True)
    before = sorted(str(path) for path in two.place.rglob("*"))
    with pytest.raises(errors.LogDirectoryMissing):
        MessageStore.open(two.root, **SIZES, commitlog_path=str(two.logs[0]))
    assert sorted(str(path) for path in two.place.rglob("*")) == before
