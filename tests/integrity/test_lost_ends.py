"""Files are deleted by hand at an end of the log, or all queues: verify, stat and get say so, and the cure."""
import os
import shutil

import pytest

import rmq_store
from rmq_store import MessageStore
from tests.dirs.test_one_directory import unseal

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000,
         "manifest_enabled": False}
pytestmark = pytest.mark.untraced       # files are changed behind the trace's back


@pytest.fixture
def root(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(200):
            store.put("TU"[i % 2], b"x" * 400, keys=f"k{i}")
    return tmp_path / "s"


def lose(root, *numbers):
    for path in [sorted((root / "commitlog").iterdir())[number] for number in numbers]:
        path.unlink()
    return 1 + max(int(path.name) for path in (root / "commitlog").iterdir()) // SMALL["segment_size_bytes"]


@pytest.mark.parametrize("ending", ["closed", "crashed", "of RocketMQ", "of RocketMQ, crashed"])
@pytest.mark.parametrize("numbers", [(-1,), (-1, -2), (0, -1)])
def test_the_newest_files_are_lost(root, ending, numbers):
    files = lose(root, *numbers)
    if "crashed" in ending:
        (root / "abort").touch()
    if "RocketMQ" in ending:
        unseal(root)
    gap = [f for f in rmq_store.verify(root) if f.kind == "log_gap"]
    assert [(f.severity, f.offset) for f in gap] == [("corrupt", files * SMALL["segment_size_bytes"])]
    assert "its newest files are missing" in gap[0].detail and "-o commitlog_loss_accepted=true" in gap[0].detail
    assert not [f for f in rmq_store.verify(root, commitlog_loss_accepted=True) if f.kind == "log_gap"]
    if "RocketMQ" not in ending:
        assert [f.kind for f in rmq_store.verify(root, files_only=True)] == ["log_gap"]


def test_one_damaged_entry_is_no_lost_file(root):
    unseal(root)
    queue = next((root / "consumequeue" / "T" / "0").iterdir())
    last = os.path.getsize(queue) if os.path.getsize(queue) < 2000 else 2000
    with sorted((root / "consumequeue" / "T" / "0").iterdir())[0].open("r+b") as file:
        file.seek(last - 20)
        file.write((1 << 30).to_bytes(8, "big"))
    assert "log_gap" not in {f.kind for f in rmq_store.verify(root)}


def test_what_is_wrong_in_the_index_is_gathered(root):
    lose(root, -1, -2)
    index = [f for f in rmq_store.verify(root) if f.kind == "index_wrong"]
    assert [f.count for f in index[:3]] == [1, 1, 1] and len(index) == 4 and index[3].count > 3
    assert str(index[3]).endswith(f" ({index[3].count} such)")


def test_the_commands_say_so(root, rmqstore):
    lose(root, -1)
    code, out, err = rmqstore("stat", root)
    assert code == 1 and "1 of the " in err and "every open for writing refuses the store" in err
    assert "log_files_missing" in out
    code, out, err = rmqstore("get", root, "-t", "T", "-i", "99")
    assert code == 1 and "no message from offset 99 to 99 of T/0 can be read" in out and "rmqstore verify" in out
    code, out, err = rmqstore("repair", root, "--dry-run")
    assert code == 2 and "-o commitlog_loss_accepted=true" in err


@pytest.mark.parametrize("words", [("get", "-t", "T"), ("tail", "-t", "T", "--for", "0"), ("query", "-t", "T", "-k", "none"),
                                   ("stat",)])
def test_the_queues_are_lost(root, rmqstore, words):
    shutil.rmtree(root / "consumequeue")
    err = rmqstore(words[0], root, *words[1:])[2]
    assert "no queues lead to the log" in err and "rmqstore repair" in err and "never had" not in err


def test_the_verdict_says_that_the_oldest_files_are_not_there(root, rmqstore):
    assert rmqstore("verify", root)[1].splitlines() == [f"{root}: nothing wrong"]
    lose(root, 0)
    code, out, _ = rmqstore("verify", root)
    assert code == 0 and "the log begins at 16384: nothing in the store tells whether cleaning" in out
    assert '"log_begin": 16384' in rmqstore("verify", root, "--json")[1].replace('":', '": ').replace(":  ", ": ")


def test_a_topic_that_is_not_there_is_all_that_stat_says(root, rmqstore):
    code, out, err = rmqstore("stat", root, "--topic", "nope")
    assert (code, out) == (1, "") and "never had a message" in err
    assert rmqstore("stat", root, "--topic", "T")[0] == 0
