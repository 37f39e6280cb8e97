"""Commits that broke off, completed where things have moved since: another path, another directory, files that cleaning took,
puts of others behind the crash, a second crash. Each record is there once; where that cannot be told, the commit is refused."""
import json
import logging
import os
import uuid
from pathlib import Path

import pytest

from rmq_store import MessageStore, backup, restore
from rmq_store.errors import ConfigError, StoreStateError
from rmq_store.spark import staging
from tests.spark.staging_of import SMALL, batch, bodies, expected, staged


class Crash(BaseException):
    pass


def broken_off(monkeypatch, root, step, *counts, app="app", options=None, job="job", pad=b""):
    """A commit that ends behind a step; after a number, behind so many appends of some KiB."""
    with monkeypatch.context() as patch:
        append, left = staging.append_staged, step

        def die(name):
            if name == step:
                raise Crash(name)

        def some(store, data, path):
            nonlocal left
            if left == 0:
                raise Crash("append")
            left -= 1
            return append(store, data, path)

        patch.setattr(staging, "_step", die)
        if isinstance(step, int):
            patch.setattr(staging, "CHUNK", 8000)
            patch.setattr(staging, "append_staged", some)
        with pytest.raises(Crash):
            staging.commit_staged(str(root), app, 0, staged(root, *counts, job=job, pad=pad), SMALL | (options or {}), job)


def finish(root, **options):
    """What the next commit does, of another application."""
    return staging.commit_staged(str(root), uuid.uuid4().hex, 0, [], SMALL | options)


def again(root, *counts, app="app", job="job", pad=b"", **options):
    return staging.commit_staged(str(root), app, 0, staged(root, *counts, job=job, pad=pad), SMALL | options, job)


# ---- the log elsewhere

@pytest.mark.parametrize("empty_directory", [False, True])
@pytest.mark.parametrize("step", ["pending", 2, "appended"])
def test_of_a_store_whose_log_is_elsewhere(tmp_path, monkeypatch, step, empty_directory):
    root, log = tmp_path / "s", str(tmp_path / "log")
    if empty_directory:
        (root / "commitlog").mkdir(parents=True)
    broken_off(monkeypatch, root, step, 300, options={"commitlog_path": log})
    assert again(root, 300, commitlog_path=log).repeated
    assert bodies(root, commitlog_path=log) == expected(300)
    assert finish(root, commitlog_path=log).records == 0


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("step", ["pending", "appended", None])
def test_a_write_that_forgets_where_the_log_is_makes_no_second_one(tmp_path, monkeypatch, step, recorded):
    """The store's record of its options tells where the log is. Without the record the write is refused."""
    root, log = tmp_path / "s", str(tmp_path / "log")
    if step is None:
        again(root, 50, commitlog_path=log)
    else:
        broken_off(monkeypatch, root, step, 50, options={"commitlog_path": log})
    if not recorded:
        (root / "config" / "storeOptions.json").unlink()
        with pytest.raises(ConfigError, match=f"has written to the log {log} of {root}.*give store.commitlog_path={log}"):
            finish(root)
    finish(root, **({} if recorded else {"commitlog_path": log}))
    assert not (root / "commitlog").exists()
    assert bodies(root, commitlog_path=log) == expected(50)


def test_a_log_that_was_moved_is_believed(tmp_path, monkeypatch):
    root = tmp_path / "s"
    broken_off(monkeypatch, root, 2, 300, options={"commitlog_path": str(tmp_path / "log")})
    (tmp_path / "log").rename(tmp_path / "new")
    with pytest.raises(ConfigError, match="has written to the log"):       # there is none: it would be made
        finish(root, commitlog_path=str(tmp_path / "typo"))
    finish(root, commitlog_path=str(tmp_path / "new"))
    assert bodies(root, commitlog_path=str(tmp_path / "new")) == expected(300)


# ---- a store that has another path

@pytest.mark.parametrize("step", ["pending", 2, "appended"])
def test_of_a_store_that_was_moved(tmp_path, monkeypatch, step):
    broken_off(monkeypatch, tmp_path / "s", step, 200, 100)
    (tmp_path / "s").rename(tmp_path / "t")
    finish(tmp_path / "t")
    assert bodies(tmp_path / "t") == expected(300) and again(tmp_path / "t", 300).repeated
    assert not (tmp_path / "s").exists() and os.listdir(tmp_path / "t" / ".spark") == ["journal"]


def test_of_a_store_that_is_called_by_another_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken_off(monkeypatch, Path("s"), "pending", 30)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    finish(Path("../s"))
    assert bodies(tmp_path / "s") == expected(30)


def test_a_journal_of_an_older_release_names_files_by_where_they_were(tmp_path, monkeypatch):
    root = tmp_path / "s"
    broken_off(monkeypatch, root, "pending", 30)
    path = Path(staging.journal_of(str(root), "app"))
    entry = json.loads(path.read_text())
    old = {name: entry[name] for name in ("app", "done", "pending", "begin", "job", "parts")}
    for part in old["parts"]:
        part["path"] = "/where/it/was/" + part["path"]
    path.write_text(json.dumps(old))
    finish(root)
    assert bodies(root) == expected(30)


# ---- cleaning in between

PAD = b"x" * 200


def cleaned(root):
    with MessageStore.open(root, **SMALL) as store:
        store.clean(0)
        return store.min_log_offset


def kept(root, before):
    """What cleaning left of what there was."""
    left = bodies(root)
    assert 0 < len(left) < len(before) and left == before[-len(left):]
    return left


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("step", [10, 25, "appended"])
def test_cleaning_takes_the_beginning_of_what_was_appended(tmp_path, monkeypatch, step, same):
    """Also of rows that are all alike, which nothing but their place tells apart."""
    root = tmp_path / "s"
    if same:
        monkeypatch.setattr("tests.spark.staging_of.batch", lambda n, first, pad: batch(1, 0, pad) * n)
    finish(root)
    broken_off(monkeypatch, root, step, 700, 500, pad=PAD)
    before = bodies(root)
    assert cleaned(root) > 0
    left = kept(root, before)
    finish(root)
    whole = [b"body 0" + PAD] * 1200 if same else expected(1200, PAD)
    assert bodies(root) == left + whole[len(before):]
    assert again(root, 1200, pad=PAD).repeated


def test_cleaning_takes_what_was_there_before_the_commit(tmp_path, monkeypatch):
    root = tmp_path / "s"
    again(root, 400, app="before", job="j0", pad=PAD)
    broken_off(monkeypatch, root, 3, 400, pad=PAD)
    before = bodies(root)
    assert cleaned(root) > 0
    left = kept(root, before)
    finish(root)
    assert bodies(root) == left + expected(400, PAD)[len(before) - 400:]


def test_where_cleaning_took_what_would_tell_the_commit_is_refused_and_others_are_not(tmp_path, monkeypatch, caplog):
    root = tmp_path / "s"
    broken_off(monkeypatch, root, 2, 300, pad=PAD)
    with MessageStore.open(root, **SMALL) as store:
        for i in range(800):
            store.put("T", b"of somebody else %d" % i + PAD)
    assert cleaned(root) > 0
    left = bodies(root)
    with pytest.raises(StoreStateError, match=r"cannot be completed: .*cleaning deleted.*move .*json away"):
        again(root, 300, job="job2", pad=PAD)
    assert bodies(root) == left
    with caplog.at_level(logging.WARNING, "rmq_store.spark"):
        assert again(root, 3, app="other", job="job3").records == 3
    assert "version 0 of application 'app' was decided" in caplog.text
    assert bodies(root) == left + expected(3)
    os.unlink(staging.journal_of(str(root), "app"))         # what the message says
    assert again(root, 300, job="job4", pad=PAD).records == 300
    assert bodies(root) == left + expected(3) + expected(300, PAD)


# ---- others put, and it breaks off once more

@pytest.mark.parametrize("first", ["pending", 4])
@pytest.mark.parametrize("second", [1, "counted", "appended"])
def test_others_put_behind_a_crash_and_the_resume_breaks_off_too(tmp_path, monkeypatch, first, second):
    root = tmp_path / "s"
    broken_off(monkeypatch, root, first, 700, 500)
    here = len(bodies(root))
    with MessageStore.open(root, **SMALL) as store:
        store.put("T", b"of somebody else")
    broken_off(monkeypatch, root, second, 1, app="another", job="job2")
    with MessageStore.open(root, **SMALL) as store:
        store.put("T", b"of a third")
    finish(root)
    found = bodies(root)
    assert found[:here + 1] == [*expected(here), b"of somebody else"]
    assert [b for b in found if b.startswith(b"body")] == expected(1200)
    assert again(root, 1200, job="job3").repeated


# ---- what one application left does not stop the others

def test_a_staging_file_that_is_gone_stops_its_own_application_only(tmp_path, monkeypatch, caplog):
    root = tmp_path / "s"
    broken_off(monkeypatch, root, "pending", 30)
    for part in (root / ".spark" / "job").iterdir():
        part.unlink()
    with pytest.raises(StoreStateError, match=r"cannot be completed: .*No such file.*\.stage.*move .*away"):
        staging.commit_staged(str(root), "app", 1, staged(root, 3, job="job2"), SMALL, "job2")
    assert again(root, 3, app="other", job="job3").records == 3 and bodies(root) == expected(3)


def test_a_log_that_ends_before_the_commit_began_is_not_its_log(tmp_path, monkeypatch):
    root = tmp_path / "s"
    again(root, 50, app="before", job="j0")
    broken_off(monkeypatch, root, "pending", 30)
    for name in os.listdir(root):
        if name != ".spark":
            (root / name).rename(tmp_path / name)
    with pytest.raises(StoreStateError, match="the log ends at 0, but it ended at"):
        staging.commit_staged(str(root), "app", 1, staged(root, 3, job="job2"), SMALL, "job2")
    assert bodies(root) == []


def test_an_abort_of_one_job_leaves_what_the_decided_commit_of_several_needs(tmp_path, monkeypatch):
    """Tasks that are not told their batch stage in directories of their own."""
    root = tmp_path / "s"
    parts = staged(root, 10, job="one") + staged(root, 10, job="two", first=10)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(staging, "append_staged", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        staging.commit_staged(str(root), "app", 0, parts, SMALL, "one")
    for job in ("one", "two"):
        staging.abandon(str(root), job)
    finish(root)
    assert bodies(root) == expected(20) and os.listdir(root / ".spark") == ["journal"]


def test_sweeping_after_a_week_spares_what_is_decided(tmp_path, monkeypatch):
    root, job = tmp_path / "s", "a" * 32
    broken_off(monkeypatch, root, "pending", 30, job=job)
    log = root / "commitlog"
    for place in (*(root / ".spark" / job).iterdir(), root / ".spark" / job):
        os.utime(place, (1, 1))
    staging.sweep_stale(str(root))
    assert log.is_dir() and len(os.listdir(root / ".spark" / job)) == 1


def test_a_version_that_is_in_a_backup_is_not_stored_again(tmp_path):
    root = tmp_path / "s"
    staging.commit_staged(str(root), "app", 0, staged(root, 5, 3), SMALL, job="job")
    parts = staged(root, 4, job="next", first=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "_step", lambda name: backup(root, tmp_path / "b") if name == "pending" else None)
        staging.commit_staged(str(root), "app", 1, parts, SMALL, job="next")
    restore(tmp_path / "b", tmp_path / "r")
    again = staged(tmp_path / "r", 5, 3)
    assert staging.commit_staged(str(tmp_path / "r"), "app", 0, again, SMALL, job="job").repeated
    parts = staged(tmp_path / "r", 4, job="next", first=8)
    assert staging.commit_staged(str(tmp_path / "r"), "app", 1, parts, SMALL, job="next").records == 4
    with MessageStore.open(tmp_path / "r", readonly=True) as store:
        assert store.total("T", 0) + store.total("T", 1) == 12
