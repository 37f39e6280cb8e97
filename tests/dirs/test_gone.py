"""A directory of the log, or files of it, that are not there: an open for writing changes nothing, a reader reads the rest."""
import logging
import os
import shutil

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.integrity.repair import repair
from rmq_store.status import GetStatus
from tests.dirs.conftest import SEGMENT, SIZES, content, numbers


def refused(several, error=errors.LogDirectoryMissing, match="", **more):
    """An open for writing raises, and changes no byte anywhere."""
    before = content(several.place)
    with pytest.raises(error, match=match or None) as caught:
        several.open(**more)
    assert content(several.place) == before
    return caught.value


def lost_numbers(several, name, count):
    """Messages whose record lies in a file of that directory."""
    with several.open(readonly=True) as store:
        gone = [m for m in store.scan("T", 0) if m.offset // SEGMENT in several.files()[name]]
        return set(numbers(gone))


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("crashed", [False, True])
def test_one_disk_gone(two, name, crashed, caplog):
    two.fill(100)
    if crashed:
        (two.root / "abort").touch()
    lost = lost_numbers(two, name, 100)
    assert 30 < len(lost) < 70
    two.lose(name)
    error = refused(two, match="mount the disk that has them")
    assert str(two.place / name / "commitlog") == error.path
    before = content(two.place)
    with caplog.at_level(logging.WARNING, "rmq_store.recovery"), two.open(readonly=True) as store:
        said = [r.fields for r in caplog.records if r.event == "LOG_DIRECTORY_MISSING"]
        assert [fields["directories"] for fields in said] == [str(two.place / name / "commitlog")]
        assert sum(r.fields["size"] for r in caplog.records if r.event == "LOG_FILES_MISSING") >= SEGMENT
        assert store.max_offset("T", 0) == 100
        left = [i for i in range(100) if i not in lost]
        assert numbers(store.scan("T", 0)) == left == numbers(store.scan())
        for i in lost:
            got = store.get("T", 0, i, 1)
            assert got.status == GetStatus.OFFSET_TOO_SMALL if i < min(left) else GetStatus.MESSAGE_WAS_REMOVING
            assert len(store.query_key("T", f"k{i}")) == 0
        assert all(len(store.query_key("T", f"k{i}")) == 1 for i in left)
        walked = list(store.log_records())
        assert any(kind == "missing" and message is None for kind, _, _, message in walked)
        assert [at + size for _, at, size, _ in walked[:-1]] == [at for _, at, _, _ in walked[1:]]     # no byte left out
        assert store.check_self()
    assert content(two.place) == before
    with pytest.raises(errors.LogDirectoryMissing):
        two.open(readonly=True, follow=True)
    two.bring_back(name)
    with two.open() as store:
        assert numbers(store.scan("T", 0)) == list(range(100))
        assert store.put("T", b"on").queue_offset == 100


def test_all_disks_gone(two):
    two.fill(30)
    two.lose("a")
    two.lose("b")
    refused(two)
    with pytest.raises(FileNotFoundError, match="the directory of its option commitlog_path does not exist"):
        two.open(readonly=True)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("which", ["newest", "middle", "all"])
def test_files_gone_from_a_directory_that_is_there(two, which, crashed, caplog):
    """As where something made the directory at the place of a disk that is not mounted."""
    two.fill(100)
    if crashed:
        (two.root / "abort").touch()
    starts = {int(path.name): path for log in two.logs for path in log.iterdir()}
    with two.open(readonly=True) as store:
        tail = store.max_log_offset // SEGMENT * SEGMENT
        at = {i: m.offset // SEGMENT * SEGMENT for i, m in enumerate(store.scan("T", 0))}
    gone = {"newest": [s for s in starts if s >= tail], "middle": [2 * SEGMENT, 4 * SEGMENT], "all": sorted(starts)}[which]
    for start in gone:
        shutil.move(starts[start], two.place / f"kept-{start}")
    refused(two, match="nothing was changed")
    before = content(two.place)
    with two.open(readonly=True) as store:
        assert numbers(store.scan("T", 0)) == [i for i in range(100) if at[i] not in gone]
        if which != "all":
            assert store.max_offset("T", 0) == 100
    assert content(two.place) == before
    for start in gone:
        shutil.move(two.place / f"kept-{start}", starts[start])
    with two.open() as store:
        assert numbers(store.scan("T", 0)) == list(range(100))


def test_lost_for_good_and_accepted(two):
    two.fill(100)
    with two.open(readonly=True) as store:
        tail = store.max_log_offset // SEGMENT * SEGMENT
        left = [i for i, m in enumerate(store.scan("T", 0)) if m.offset < tail]
    for log in two.logs:
        for path in log.iterdir():
            if int(path.name) >= tail:
                path.unlink()
    assert "commitlog_loss_accepted=true of a command) opens the store without them" in str(refused(two))
    queues = content(two.root / "consumequeue")
    with two.open(commitlog_loss_accepted=True) as store:
        (copy,) = (two.root / ".salvage").glob("queues-*")
        assert content(copy / "consumequeue") == queues
        assert numbers(store.scan("T", 0)) == left
        assert store.put("T", b"on").queue_offset == len(left)
    with two.open() as store:       # once is enough
        assert store.max_offset("T", 0) == len(left) + 1


def test_a_recovery_that_was_killed_between_two_files_looks_like_no_missing_disk(two):
    """It cut the log in an earlier file, and deletes later files; queues led there."""
    two.fill(100)
    with two.open(readonly=True) as store:
        messages = [(m.offset, m.queue_offset) for m in store.scan("T", 0)]
    at, left = next((offset, number) for offset, number in messages if offset > 2 * SEGMENT + 100)
    path = next(log / f"{2 * SEGMENT:020d}" for log in two.logs if (log / f"{2 * SEGMENT:020d}").exists())
    with open(path, "r+b") as file:
        file.seek(at - 2 * SEGMENT)
        file.write(bytes(3000))
    (two.root / "checkpoint").unlink()      # nothing tells how far the log was flushed
    (two.root / "abort").touch()
    kept, tried = two.place.with_name("kept"), 0
    shutil.copytree(two.place, kept)
    for n in range(1, 400, 3):
        probe = ProbeIo(keep_bytes=False)
        probe.freeze("mutate|sync", n)
        try:
            two.open(_io=probe).close()
        except (errors.RmqStoreError, OSError):
            assert probe.frozen
        with two.open() as store:
            assert numbers(store.scan("T", 0)) == list(range(left)) and store.max_offset("T", 0) == left, n
        if not probe.frozen:
            break
        tried += 1
        shutil.rmtree(two.place)
        shutil.copytree(kept, two.place)
    assert tried > 8


def test_a_link_to_a_disk_that_is_gone(two):
    disk = two.place / "disk2"
    (disk / "log").mkdir(parents=True)
    two.logs[1].parent.mkdir()
    two.logs[1].symlink_to(disk / "log")
    two.fill(100)
    lost = lost_numbers(two, "b", 100)
    disk.rename(two.place / "disk2-gone")
    refused(two, match=r"if it is a new directory, make it \(mkdir\); else mount the disk")
    with two.open(readonly=True) as store:
        assert numbers(store.scan("T", 0)) == [i for i in range(100) if i not in lost]
    (two.place / "disk2-gone").rename(disk)
    with two.open() as store:
        assert numbers(store.scan("T", 0)) == list(range(100))


def test_no_link_of_a_new_store_is_followed_into_nothing(two):
    two.logs[1].parent.mkdir()
    two.logs[1].symlink_to(two.place / "nowhere")
    refused(two)


def test_one_name_in_two_directories(two):
    two.fill(60)
    source = two.logs[0] / f"{2 * SEGMENT:020d}"
    shutil.copy(source, two.logs[1])
    error = refused(two, errors.StoreRefusesToLoad, match="move the file away that is not part of the log")
    assert str(source) in str(error) and str(two.logs[1] / source.name) in str(error) and "holds nothing" not in str(error)
    with pytest.raises(errors.StoreRefusesToLoad):
        two.open(readonly=True)
    found = [f.kind for f in rmq_store.verify(two.root, **two.options())]
    assert "log_twice" in found
    (two.logs[1] / source.name).write_bytes(bytes(SEGMENT))
    assert f"{two.logs[1] / source.name} holds nothing" in str(refused(two, errors.StoreRefusesToLoad))


def test_a_new_store_makes_its_directories_and_only_a_new_one(two):
    two.open().close()
    assert all(log.is_dir() for log in two.logs)
    shutil.rmtree(two.logs[1])
    refused(two)
    # read-only directories are never made
    shutil.rmtree(two.place)
    two.place.mkdir()
    refused(two, commitlog_paths_readonly=str(two.place / "c"))


def test_an_empty_directory_where_others_have_files_is_told(three, caplog):
    three.fill(100)
    mine = three.logs.pop()
    names = [path.name for path in mine.iterdir()]
    for i, name in enumerate(names):
        shutil.move(mine / name, three.logs[i % 2])
    three.logs.append(mine)
    with caplog.at_level(logging.WARNING, "rmq_store.recovery"), three.open() as store:
        assert numbers(store.scan("T", 0)) == list(range(100))
    assert [r.fields["directory"] for r in caplog.records if r.event == "LOG_DIRECTORY_EMPTY"] == [str(mine)]


def test_tools_refuse_a_half_and_change_nothing(two, tmp_path):
    two.fill(100)
    two.lose("b")
    before = content(two.place)
    kinds = {f.kind for f in rmq_store.verify(two.root, **two.options())}
    assert {"log_directory", "log_gap"} <= kinds
    assert {"log_directory", "log_gap"} <= {f.kind for f in rmq_store.verify(two.root, files_only=True, **two.options())}
    for call in (lambda: repair(two.root, dry_run=False, **two.options()),
                 lambda: rmq_store.backup(two.root, tmp_path / "backups", **two.options()),
                 lambda: rmq_store.copy_messages(two.root, tmp_path / "copy", source_options=two.options())):
        with pytest.raises(errors.LogDirectoryMissing):
            call()
    assert content(two.place) == before and not (tmp_path / "copy").exists() and not (tmp_path / "backups").exists()


def test_repair_refuses_a_log_without_its_newest_files(two):
    two.fill(100)
    with two.open(readonly=True) as store:
        tail = store.max_log_offset // SEGMENT * SEGMENT
    for log in two.logs:
        for path in log.iterdir():
            if int(path.name) >= tail:
                path.unlink()
    before = content(two.place)
    with pytest.raises(errors.LogDirectoryMissing):
        repair(two.root, dry_run=False, **two.options())
    assert content(two.place) == before


def test_following_reads_files_of_both_directories(two):
    two.fill(20)
    with two.open() as writer, two.open(readonly=True, follow=True) as reader:
        for i in range(20, 80):
            writer.put("T", i.to_bytes(4, "big") + bytes(3000))
        seen = 20
        while seen < 80:
            seen += len(reader.get("T", 0, seen, wait=10))
        assert numbers(reader.scan("T", 0)) == list(range(80))
    assert os.path.isdir(two.logs[0])


def test_entries_that_lead_far_away_are_damage_and_no_disk(two):
    two.fill(60)
    (queue,) = (two.root / "consumequeue" / "T" / "0").iterdir()
    with open(queue, "r+b") as file:
        file.seek(59 * 20)
        file.write((1 << 60).to_bytes(8, "big"))
    with two.open() as store:
        assert numbers(store.scan("T", 0)) == list(range(60))


def test_the_first_file_gone_is_a_log_that_begins_later(two):
    two.fill(60)
    moved = two.logs[0] / f"{0:020d}"
    shutil.move(moved, two.place / "kept")
    with MessageStore.open(two.root, **two.options(readonly=True)) as store:
        assert store.min_log_offset == SEGMENT and store.get("T", 0, 0).status == GetStatus.OFFSET_TOO_SMALL
    assert SIZES
