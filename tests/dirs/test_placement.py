"""Where new files of the log are made (RocketMQ: MultiPathMappedFileQueue.tryCreateMappedFile)."""
import errno
import logging
import os

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.config.load import resolve
from rmq_store.log.recovery.places import Places
from tests.dirs.conftest import SEGMENT, SIZES, Several, content, numbers
from tests.mounts import loop_mount, run

WRITES = [{}, {"write_path": "pool"}, {"flush_mode": "sync"}]


def all_there(store, count, topic="T"):
    assert numbers(store.scan(topic, 0)) == list(range(count))
    assert [len(store.query_key(topic, f"k{i}")) for i in (0, count // 2, count - 1)] == [1, 1, 1]


@pytest.mark.parametrize("how", WRITES, ids=str)
def test_files_take_turns_and_all_is_read_again(three, how):
    three.fill(100, **how)
    found = three.files()
    for turn, name in enumerate("abc"):
        assert found[name] and all(number % 3 == turn for number in found[name]), found
    for more in ({}, how, {"readonly": True}):
        with three.open(**more) as store:
            all_there(store, 100)
            assert store.check_self() == []


def test_the_order_of_the_paths_does_not_matter(two):
    two.fill(60)
    two.logs.reverse()
    two.fill(60)
    found = two.files()
    assert all(number % 2 == 0 for number in found["a"]) and all(number % 2 == 1 for number in found["b"])
    with two.open() as store:
        all_there(store, 120)


def test_a_sequence_of_paths_and_rocketmqs_name(two):
    with MessageStore.open(two.root, **SIZES, commitlog_path=tuple(two.logs)) as store:
        assert store.options.commitlog_path == tuple(map(str, two.logs))
    with MessageStore.open(two.root, **SIZES, storePathCommitLog=f"{two.logs[0]},{two.logs[1]}") as store:
        assert store.options.origin("commitlog_path") == "keyword storePathCommitLog"
    with MessageStore.open(two.root, **SIZES, commitlog_path=two.options()["commitlog_path"]) as store:
        assert Places(store.path, store.options).growing == sorted(map(str, two.logs))


def test_broker_conf_names_paths_and_read_only_ones(two, tmp_path):
    (tmp_path / "broker.conf").write_text(f"storePathCommitLog={two.logs[0]},{two.logs[1]}\n"
                                          f"readOnlyCommitLogStorePaths={two.logs[1]}\n")
    options = resolve(config=tmp_path / "broker.conf")
    places = Places(str(two.root), options)
    assert places.growing == [str(two.logs[0])] and places.commitlogs == tuple(map(str, two.logs))
    (tmp_path / "broker.conf").write_text("readOnlyCommitLogStorePaths=\n")
    assert resolve(config=tmp_path / "broker.conf").commitlog_paths_readonly == ()


def test_a_store_in_one_directory_is_what_it_was(tmp_path):
    for name, more in (("one", {}), ("given", {"commitlog_path": str(tmp_path / "given" / "commitlog")})):
        with MessageStore.open(tmp_path / name, **SIZES, **more) as store:
            for i in range(40):
                store.put("T", bytes([i]) * 3000, born_timestamp=1, keys=f"k{i}")
        assert sorted(os.listdir(tmp_path / name)) == [".alloc", "checkpoint", "commitlog", "consumequeue", "index", "lock"]
    assert os.listdir(tmp_path / "one" / "commitlog") == os.listdir(tmp_path / "given" / "commitlog")


def test_read_only_directories_get_no_file_and_keep_what_they_have(two):
    two.fill(60)
    before = two.files()
    more = {"commitlog_paths_readonly": str(two.logs[0])}
    two.fill(60, **more)
    found = two.files()
    last = max(before["a"] + before["b"])
    assert [n for n in found["a"] if n > last] == [] and [n for n in found["b"] if n > last]
    with two.open(**more) as store:
        all_there(store, 120)
    # named as a read-only directory alone
    with MessageStore.open(two.root, **SIZES, commitlog_path=str(two.logs[1]),
                           commitlog_paths_readonly=str(two.logs[0])) as store:
        all_there(store, 120)


def test_the_log_ends_in_a_directory_that_becomes_read_only(two):
    two.fill(10)
    assert two.files() == {"a": [0], "b": []} or two.files() == {"a": [0], "b": [1]}
    two.fill(5, commitlog_paths_readonly=str(two.logs[0]))
    with two.open(commitlog_paths_readonly=str(two.logs[0])) as store:
        all_there(store, 15)


def test_a_directory_is_added_later(two):
    two.fill(60)
    both = two.logs
    two.logs = [*both, two.place / "c" / "commitlog"]
    with pytest.raises(errors.LogDirectoryMissing, match=r"if it is a new directory, make it \(mkdir\)"):
        two.open()
    assert not (two.place / "c").exists()
    two.logs[2].mkdir(parents=True)
    last = max(two.files()["a"] + two.files()["b"])
    two.fill(100)
    found = two.files()
    assert found["c"] and all(number % 3 == 2 for number in found["c"])
    assert all(number % 3 == 0 for number in found["a"] if number > last)
    with two.open() as store:
        all_there(store, 160)


def test_full_disks_are_avoided_while_one_is_not(three, caplog):
    full = {str(three.logs[0])}
    with three.open(clean_interval_ms=100_000) as store:
        store._cleaner.used = lambda path: 86 if path in full else 40
        with caplog.at_level(logging.INFO, "rmq_store.cleaning"):
            store._cleaner.tick(store, None)
            store._cleaner.tick(store, None)
        assert [r.event for r in caplog.records] == ["LOG_DIRECTORY_FULL"] and caplog.records[0].fields["directory"] in full
        begin = store.max_log_offset // SEGMENT + 2           # what is made ahead was placed before
        for i in range(100):
            store.put("T", i.to_bytes(4, "big") + bytes(3000))
        assert not [n for n in three.files()["a"] if n >= begin]
        assert all(n % 2 == 0 for n in three.files()["b"] if n >= begin)
        assert all(n % 2 == 1 for n in three.files()["c"] if n >= begin)
        full |= set(map(str, three.logs))                     # all: then all take turns, as if none was
        store._cleaner.tick(store, None)
        begin = store.max_log_offset // SEGMENT + 2
        for i in range(100):
            store.put("T", i.to_bytes(4, "big") + bytes(3000))
        assert all(n % 3 == 0 for n in three.files()["a"] if n >= begin) and max(three.files()["a"]) >= begin
        full.clear()
        with caplog.at_level(logging.INFO, "rmq_store.cleaning"):
            store._cleaner.tick(store, None)
        assert [r.event for r in caplog.records].count("LOG_DIRECTORY_BACK") == 3


def test_puts_are_refused_only_when_every_disk_is_full(two):
    with two.open(retention_hours=1, clean_interval_ms=100_000, clean_forced=False) as store:
        store._cleaner.used = lambda path: 95 if path == str(two.logs[0]) else 20
        store._cleaner.tick(store, _never())
        assert not store.disk_full
        store._cleaner.used = lambda path: 95
        store._cleaner.tick(store, _never())
        assert store.disk_full


class _never:
    def is_set(self):
        return False

    def wait(self, timeout):
        return False


def test_no_space_in_one_directory_goes_to_the_other(two):
    io = ProbeIo(keep_bytes=False)
    with two.open(_io=io) as store:
        io.fail("fallocate", errno=errno.ENOSPC, path=str(two.logs[1]) + ".alloc/", sticky=True)
        begin = store.max_log_offset // SEGMENT + 2
        for i in range(200):
            store.put("T", i.to_bytes(4, "big") + bytes(3000))
        assert not [n for n in two.files()["b"] if n >= begin] and max(two.files()["a"]) > begin
        io.fail("fallocate", errno=errno.ENOSPC, path=".alloc/", sticky=True)
        with pytest.raises(errors.DiskFull):
            for i in range(100):
                store.put("T", i.to_bytes(4, "big") + bytes(3000))
    with two.open() as store:
        assert store.max_offset("T", 0) >= 60


def test_two_names_of_one_directory_are_refused(two):
    two.fill(30)
    link = two.place / "link"
    link.symlink_to(two.logs[0])
    before = content(two.place)
    two.logs.append(link)
    for more in ({}, {"readonly": True}):
        with pytest.raises(errors.ConfigError, match="are one directory, by a link or a mount: give it once"):
            two.open(**more)
    assert content(two.place) == before


def test_a_directory_behind_a_link(two):
    real = two.place / "disk9" / "log"
    real.mkdir(parents=True)
    two.logs[1].parent.mkdir()
    two.logs[1].symlink_to(real)
    two.fill(60)
    assert os.listdir(real) and (two.place / "disk9" / "log.alloc").is_dir()
    with two.open() as store:
        all_there(store, 60)


def test_directories_on_two_file_systems(tmp_path, memory_disk):
    if os.stat(memory_disk).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("no second file system here")
    several = Several(tmp_path, "ab")
    several.logs[1] = memory_disk / "b" / "log"
    several.fill(60)
    with several.open() as store:
        all_there(store, 60)


def test_a_path_that_is_the_place_of_a_mount_is_refused(two, monkeypatch):
    stat = os.stat

    def elsewhere(path, **more):
        about = stat(path, **more)
        return about if str(path) != str(two.logs[1]) else os.stat_result((about[0], about[1], about[2] + 1, *about[3:]))

    monkeypatch.setattr(os, "stat", elsewhere)
    with pytest.raises(errors.ConfigError, match="give a directory in that file system, not the place where it is mounted"):
        two.open()


@pytest.mark.root
def test_a_read_only_directory_on_a_disk_that_is_mounted_read_only(two, tmp_path, caplog):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with loop_mount(tmp_path, 16 << 20, ("mkfs.ext4", "-q")) as (disk, _):
        two.logs[0] = disk / "commitlog"
        two.fill(60)
        two.fill(20, commitlog_paths_readonly=str(two.logs[0]))
        two.fill(20, commitlog_paths_readonly=str(two.logs[0]))
        run("mount", "-o", "remount,ro", str(disk))
        more = {"commitlog_paths_readonly": str(two.logs[0])}
        with two.open(**more) as store:
            all_there(store, 100)
            store.put("T", (100).to_bytes(4, "big") + bytes(3000), keys="k100")
            assert store.clean(0, pace_ms=0).log_files == 1        # the first one is in the other directory
            assert store.min_log_offset == SEGMENT
            assert [r.event for r in caplog.records if r.event == "LOG_FILE_FIXED"]
        (two.root / "abort").touch()
        with two.open(**more) as store:
            assert numbers(store.scan("T", 0))[-1] == 100
        with pytest.raises(errors.ConfigError, match="name the directory in commitlog_paths_readonly"):
            two.open()
        run("mount", "-o", "remount,rw", str(disk))


def test_the_configuration_is_shown_as_it_can_be_given(two, rmqstore, tmp_path):
    (tmp_path / "broker.conf").write_text(f"storePathCommitLog={two.logs[0]},{two.logs[1]}\n")
    code, out, err = rmqstore("config", "convert", tmp_path / "broker.conf")
    assert code == 0, err
    (tmp_path / "store.toml").write_text(out)
    assert resolve(config=tmp_path / "store.toml").commitlog_path == tuple(map(str, two.logs))
    code, out, err = rmqstore("config", "show", "-o", f"commitlog_path={two.logs[0]},{two.logs[1]}", "commitlog_path")
    assert code == 0 and f"{two.logs[0]},{two.logs[1]}" in out, out + err
