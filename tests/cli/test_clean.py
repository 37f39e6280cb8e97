"""`rmqstore clean`: says what would go, deletes it, and names the groups that had not consumed it."""
import os
import time

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 8192, "index_slots": 10, "index_entries_max": 8}


@pytest.fixture
def store(tmp_path):
    """Six files, the first three of them two hours old."""
    path = tmp_path / "store"
    with MessageStore.open(path, **SMALL) as s:
        for _ in range(6):
            s.put("T", b"x" * 7000)
        s.wait_dispatched(30)
        s.offsets.commit("G", "T", 0, 1)
    for name in sorted(os.listdir(path / "commitlog"))[:3]:
        os.utime(path / "commitlog" / name, (0, time.time() - 7200))
    return path


def test_dry_run_then_clean(store, rmqstore, json_lines):
    code, out, _ = rmqstore("clean", store, "--hours", "1", "--dry-run")
    assert code == 0 and f"{8192 * 2:020d}  8.0 KiB  last modified" in out and "3 files, 24.0 KiB" in out
    assert [line["offset"] for line in json_lines("clean", store, "--hours", "1", "-n")[1]] == [0, 8192, 16384]
    assert len(os.listdir(store / "commitlog")) == 6
    code, out, _ = rmqstore("clean", store, "--hours", "1", "--files", "1")
    assert code == 0 and "deleted 1 commit-log files (8.0 KiB), 0 queue files, 0 index files" in out
    code, out, err = rmqstore("clean", store, "--hours", "1")
    assert code == 0 and "the log begins at offset 24576" in out and "group G lost 1 messages of T/0" in err
    assert [line.split() for line in out.splitlines()[-2:]] == [["G", "T", "0", "1", "1", "2"], ["G", "T", "0", "1", "2", "3"]]
    code, out, err = rmqstore("clean", store, "--hours", "0", "--json")
    assert code == 0 and '"log_files":2' in out and '"min_log_offset":40960' in out


@pytest.mark.parametrize(("arguments", "words"), [
    (("--hours", "-1"), "hours is -1.0: give the age"), (("--hours", "nan"), "hours is nan: give the age"),
    (("--hours", "inf"), "hours is inf: give the age"), (("--hours", "1", "--files", "-1"), "files_max is -1: give"),
    (("--hours", "soon"), "invalid float value: 'soon'")])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_is_no_age_and_no_number(store, rmqstore, arguments, words, more):
    code, _, err = rmqstore("clean", store, *arguments, *more)
    assert code == 64 and words in err and len(os.listdir(store / "commitlog")) == 6


def test_an_age_is_needed(store, rmqstore):
    code, _, err = rmqstore("clean", store)
    assert code == 64 and "retention_hours" in err
    code, out, _ = rmqstore("clean", store, "-o", "retention_hours=1", "-o", "clean_interval_ms=3600000")
    assert code == 0 and "deleted 3 commit-log files" in out
