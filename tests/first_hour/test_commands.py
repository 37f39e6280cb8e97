"""What somebody types who has read half of a page: arguments in any order, no queue named, a topic that is not there."""
import json
import os
import pty
import subprocess
import sys

import pytest

from rmq_store import MessageStore, errors

SMALL = {"segment_size_bytes": 1 << 16, "index_slots": 100, "index_entries_max": 1000}
OPTIONS = [part for name, value in SMALL.items() for part in ("-o", f"{name}={value}")]


@pytest.fixture
def root(tmp_path):
    """Three queues of one topic, taken in turns, and another topic."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(9):
            store.put("orders", b"%d" % i, queue_id=2 * (i % 3), keys=f"k{i}", properties={"UNIQ_KEY": f"{i:032X}"})
        store.put("other", b"x")
    return tmp_path / "s"


@pytest.mark.parametrize("words", [["S", "-t", "T", "F"], ["S", "F", "-t", "T"],
                                   ["-t", "T", "S", "F"], ["-t", "T", "--", "S", "F"]])
def test_arguments_in_any_order(tmp_path, rmqstore, words):
    (tmp_path / "lines").write_text("one\ntwo\n")
    places = {"S": tmp_path / "s", "F": tmp_path / "lines"}
    code, out, err = rmqstore("put", *OPTIONS, *(places.get(w, w) for w in words))
    assert (code, err) == (0, "") and out.startswith("stored 2 messages in T/0")


def bodies(out):
    return [json.loads(line)["body"] for line in out.splitlines()]


def test_all_queues_are_read_unless_one_is_named(root, rmqstore):
    assert bodies(rmqstore("get", root, "-t", "orders", "--json")[1]) == [str(i) for i in range(9)]
    assert bodies(rmqstore("get", root, "-t", "orders", "-c", "4", "--json")[1]) == ["0", "1", "2", "3"]
    assert bodies(rmqstore("get", root, "-t", "orders", "-i", "-1", "--json")[1]) == ["6", "7", "8"]
    assert bodies(rmqstore("get", root, "-t", "orders", "-q", "4", "--json")[1]) == ["2", "5", "8"]
    assert bodies(rmqstore("tail", root, "-t", "orders", "-i", "1", "--for", "0", "--json")[1]) == [*"345678"]
    assert bodies(rmqstore("query", root, "-t", "orders", "--time", "0", "--json")[1]) == ["0", "1", "2"]
    code, out, err = rmqstore("get", root, "-t", "orders", "-i", "7")
    assert code == 1 and out.splitlines() == [
        f"OFFSET_OVERFLOW_BADLY: no message at offset 7: the queue orders/{q} begins at 0 and ends before 3"
        for q in (0, 2, 4)] and err == ""


def test_tail_follows_queues_that_come_later(root, tmp_path):
    tail = subprocess.Popen([sys.executable, "-u", "-m", "rmq_store", "tail", str(root), "-t", "orders", "-i", "2", "-c", "5",
                             "--json"], stdout=subprocess.PIPE, text=True)
    seen = [json.loads(tail.stdout.readline())["body"] for _ in range(3)]
    with MessageStore.open(root, **SMALL) as store:
        store.put("orders", b"later", queue_id=7, wait=True)
        store.put("orders", b"again", queue_id=0, wait=True)
    seen += [json.loads(line)["body"] for line in tail.communicate(timeout=60)[0].splitlines()]
    assert seen == ["6", "7", "8", "later", "again"] and tail.returncode == 0


@pytest.mark.parametrize(("words", "said"), [
    (["get", "-t", "ordres"], "rmqstore get: topic 'ordres' of {} never had a message: the topics are orders"),
    (["get", "-t", "orders", "-q", "1"], "rmqstore get: queue 1 of topic 'orders' never had a message: the queues of the topic "
     "are 0, 2, 4"),
    (["get", "-t", "x", "--wait", "0"], "rmqstore get: topic 'x' of {} never had a message: the topics are orders, other"),
    (["tail", "-t", "x", "--for", "0"], "rmqstore tail: topic 'x' of {} never had a message: the topics are orders, other"),
    (["tail", "-t", "orders", "-q", "3", "--for", "0"], "rmqstore tail: queue 3 of topic 'orders' never had a message"),
    (["query", "-t", "x", "-k", "k1"], "rmqstore query: topic 'x' of {} never had a message: the topics are orders, other"),
    (["stat", "-t", "x"], "rmqstore stat: topic 'x' of {} never had a message: the topics are orders, other")])
def test_a_topic_that_is_not_there_is_said(root, rmqstore, words, said):
    for more in ([], ["--json"]):
        code, _, err = rmqstore(words[0], root, *words[1:], *more)
        assert code == (0 if words[0] == "tail" else 1) and err.startswith(said.format(root)), err


def test_the_id_that_a_client_made_is_a_key(root, rmqstore):
    unique = f"{3:032X}"
    code, out, err = rmqstore("query", root, "-i", f"0000000000000000{1:016X}")
    assert code == 1 and "unique key" in err and "-k" in err
    with MessageStore.open(root, **SMALL) as store:
        found = store.put("orders", b"unique", properties={"UNIQ_KEY": "FF" * 16})
    code, out, err = rmqstore("query", root, "-i", "FF" * 16)
    assert code == 1 and "nothing found" in out
    assert err == (f"rmqstore query: {'FF' * 16} is the unique key of a message, not its offset message id: run rmqstore query "
                   f"{root} -t orders -k {'FF' * 16}\n")
    code, out, err = rmqstore(*err.rpartition("rmqstore ")[2].split())
    assert code == 0 and f"@{found.offset}" in out
    code, _, err = rmqstore("query", root, "-i", "1-2-3")
    assert code == 64 and "'1-2-3'" in err and "-t TOPIC -k" in err and unique


def on_terminal(*words):
    """What a command shows where a person reads it."""
    primary, replica = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "rmq_store", *map(str, words)], stdout=replica, stderr=replica):
        os.close(replica)
        shown = b""
        try:
            while chunk := os.read(primary, 65536):
                shown += chunk
        except OSError:         # the other end is closed
            pass
    os.close(primary)
    return shown.decode()


def test_long_and_binary_bodies_are_shortened_on_a_terminal(tmp_path, rmqstore):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        store.put("T", b"0x" + b"a" * 5000)
        store.put("T", b"\xff" * 3000, queue_id=1)
        store.put("T", b"short", queue_id=2)
    log = root / "commitlog" / ("0" * 20)
    for words in (["get", root, "-t", "T"], ["dump", log, "--count", "3"]):
        shown = on_terminal(*words)
        assert "a" * 300 in shown and "a" * 500 not in shown and "... (5,002 bytes; --body utf8 shows all)" in shown
        assert "0x" + "ff" * 64 + "... (3,000 bytes; --body hex shows all)" in shown and "short" in shown
        out = rmqstore(*words)[1]
        assert "a" * 5000 in out and "ff" * 3000 in out and "shows all" not in out
    assert "ff" * 3000 in on_terminal("get", root, "-t", "T", "-q", "1", "--body", "hex")
    assert "a" * 5000 in on_terminal("get", root, "-t", "T", "-q", "0", "--json")


def test_bench_takes_a_directory_as_doctor_and_advise_do(tmp_path, json_lines):
    code, lines = json_lines("bench", tmp_path, "--seconds", "0.02", "--mib", "4", "--segment-mib", "16", "-o",
                             "index_slots=1000", "-o", "index_entries_max=50000")
    assert code == 0 and {line["dir"] for line in lines} == {str(tmp_path)}
    assert [line["case"]["workload"] for line in lines] == ["put_sustained", "put_sync", "get"]
    assert not list(tmp_path.iterdir())
    for way in (["put_sync", tmp_path / "a"], ["put_sync", "--dir", tmp_path / "a"]):
        code, (line,) = json_lines("bench", *way, "--seconds", "0.02", "--mib", "4", "--segment-mib", "16", "-o",
                                   "index_slots=1000", "-o", "index_entries_max=50000")
        assert code == 0 and line["dir"] == str(tmp_path / "a")


def test_reading_makes_nothing(tmp_path, rmqstore, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, *rest in (["get", "-t", "T"], ["tail", "-t", "T"], ["stat"], ["query", "-t", "T", "-k", "k"], ["verify"],
                           ["offsets", "show"], ["topics", "list"], ["groups", "list"], ["clean", "--hours", "1"],
                           ["topics", "set", "-t", "T"], ["groups", "set", "-g", "G"], ["readback"], ["scrub"], ["repair"]):
        words = [command, *rest]
        words.insert(2 if command in ("offsets", "topics", "groups") else 1, tmp_path / "none")
        code, _, err = rmqstore(*words)
        assert code == 3 and "not a message store" in err and not list(tmp_path.iterdir()), words


@pytest.mark.parametrize("readonly", [False, True])
def test_must_exist(tmp_path, readonly):
    with pytest.raises(FileNotFoundError, match="not a message store: the directory does not exist"):
        MessageStore.open(tmp_path / "s", must_exist=True, readonly=readonly)
    (tmp_path / "s").mkdir()
    with pytest.raises(FileNotFoundError, match="it is empty"):
        MessageStore.open(tmp_path / "s", must_exist=True, readonly=readonly)
    assert list(tmp_path.iterdir()) == [tmp_path / "s"] and not list((tmp_path / "s").iterdir())
    MessageStore.open(tmp_path / "s", **SMALL).close()
    MessageStore.open(tmp_path / "s", must_exist=True, readonly=readonly, **SMALL).close()
    for near in (tmp_path / "s" / "commitlog", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"it has no commitlog directory"):
            MessageStore.open(near, must_exist=True, readonly=readonly)
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/s is one"):
        MessageStore.open(tmp_path / "s" / "commitlog", readonly=True)


def test_a_store_is_opened_not_made_by_a_call(tmp_path):
    with pytest.raises(errors.ArgumentIllegal, match=r"MessageStore.open\(path"):
        MessageStore(tmp_path)
    with pytest.raises(TypeError, match=r"MessageStore.open\(path"):
        MessageStore()
