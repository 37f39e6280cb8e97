"""put, get, query, stat, demo on a store of their own: what one writes the others show, as text and as JSON lines."""
import io
import sys

import pytest

from rmq_store.cli import put

SMALL = ("-o", "segment_size_bytes=1048576", "-o", "index_slots=64", "-o", "index_entries_max=1024")


class _Stdin(io.StringIO):
    def __init__(self, data):
        super().__init__()
        self.buffer = io.BytesIO(data)


@pytest.fixture
def store(tmp_path, rmqstore, monkeypatch):
    """A store with three messages of topic T, queue 1."""
    path = tmp_path / "store"
    monkeypatch.setattr(sys, "stdin", _Stdin(b"first\nsecond\r\n\xff\xfe\n"))
    code, out, err = rmqstore("put", path, "-t", "T", "-q", "1", "--tags", "A", "-k", "k1 k2", "-p", "color=red", *SMALL)
    assert code == 0, err
    assert "stored 3 messages in T/1: queue offsets 0 to 2" in out
    return path


def test_get_shows_what_put_stored(store, rmqstore, json_lines):
    code, lines = json_lines("get", store, "-t", "T", "-q", "1", *SMALL)
    assert code == 0
    assert [(x["queue_offset"], x["body"], x["body_as"]) for x in lines] == [
        (0, "first", "utf8"), (1, "second", "utf8"), (2, "fffe", "hex")]
    assert lines[0]["tags"] == "A" and lines[0]["keys"] == "k1 k2" and lines[0]["properties"]["color"] == "red"
    code, out, _ = rmqstore("get", store, "-t", "T", "-q", "1", "-i", "-2", "-c", "1", *SMALL)
    assert code == 0 and len(out.splitlines()) == 1 and "T/1[1]" in out and "second" in out


def test_nothing_found_is_1(store, rmqstore):
    code, out, _ = rmqstore("get", store, "-t", "T", "-q", "1", "-i", "3", *SMALL)
    assert code == 1 and "OFFSET_OVERFLOW_ONE" in out
    assert rmqstore("query", store, "-t", "T", "-k", "none", *SMALL)[0] == 1


def test_query_each_way(store, json_lines, rmqstore):
    _, every = json_lines("get", store, "-t", "T", "-q", "1", *SMALL)
    first, last = every[0], every[-1]
    for how, want in ((["-t", "T", "-k", "k2", "-m", "1"], last), (["-i", first["msg_id"]], first),
                      (["--offset", first["offset"]], first), (["-t", "T", "-q", "1", "--time", "0"], first)):
        code, lines = json_lines("query", store, *how, *SMALL)
        assert code == 0 and [x["offset"] for x in lines] == [want["offset"]]
    assert len(json_lines("query", store, "-t", "T", "-k", "k1", *SMALL)[1]) == 3
    assert rmqstore("query", store, "-k", "k2", *SMALL)[0] == 64
    assert rmqstore("query", store, "-i", "no-id", *SMALL)[0] == 64


def test_stat(store, rmqstore, json_lines):
    code, lines = json_lines("stat", store, *SMALL)
    assert code == 0
    assert lines[0]["kind"] == "store"
    assert (lines[1]["topic"], lines[1]["queue_id"], lines[1]["messages"]) == ("T", 1, 3)
    code, out, _ = rmqstore("stat", store, *SMALL)
    assert code == 0 and "topic  queue  min  max  messages" in out


def test_put_a_file_as_one_message(store, tmp_path, json_lines, rmqstore):
    (tmp_path / "letter").write_bytes(b"a\nb\n")
    code, lines = json_lines("put", store, tmp_path / "letter", "-t", "T", "--whole", "--sync", *SMALL)
    assert code == 0 and [x["status"] for x in lines] == ["PUT_OK"]
    _, lines = json_lines("get", store, "-t", "T", "-q", "0", *SMALL)
    assert lines[0]["body"] == "a\nb\n"
    assert rmqstore("put", store, tmp_path / "letter", "-t", "bad topic", *SMALL)[0] == 64
    assert rmqstore("put", tmp_path / "new", tmp_path / "letter", "-t", "bad topic", *SMALL)[0] == 64
    assert not (tmp_path / "new").exists()
    assert rmqstore("put", store, tmp_path / "none", "-t", "T", *SMALL)[0] == 3
    assert rmqstore("put", store, tmp_path / "letter", "-t", "T", "-p", "x", *SMALL)[0] == 64


def test_a_typing_mistake_in_an_option_is_named(store, rmqstore):
    code, _, err = rmqstore("stat", store, "-o", "segment_size=1")
    assert code == 64 and "did you mean segment_size_bytes" in err


def test_demo_leads_to_commands_that_work(tmp_path, rmqstore, json_lines):
    where = tmp_path / "demo"
    code, lines = json_lines("demo", where, "--count", "500", "--size", "20")
    assert code == 0
    assert {x["kind"] for x in lines} >= {"written", "durable", "read", "found", "closed", "file", "command"}
    assert next(x for x in lines if x["kind"] == "closed")["clean"] is True
    for line in lines:
        if line["kind"] == "command" and "|" not in line["command"]:
            code, out, err = rmqstore(*line["arguments"])
            assert (code, err) == (0, "") and out, line["command"]
    assert rmqstore("demo", where)[0] == 3


def test_demo_tells_a_person(tmp_path, rmqstore):
    code, out, _ = rmqstore("demo", tmp_path / "demo", "--count", "500")
    assert code == 0
    for words in ("written", "durable  100%", "wait=True", "commitlog", " dump ",
                  f"stays until you delete it: rm -r {tmp_path}"):
        assert words in out


def test_readback_asks_what_another_one_asked(store, tmp_path, rmqstore):
    like = tmp_path / "like.jsonl"
    like.write_text('{"t":"time","topic":"T","queueId":1,"ts":0}\n{"t":"time","topic":"U","queueId":0,"ts":5}\n'
                    '{"t":"get","topic":"T","queueId":1,"offset":1,"maxMsgs":1}\n'
                    '{"t":"key","topic":"T","key":"k1","maxNum":2,"begin":0,"end":4000000000000}\n')
    code, out, err = rmqstore("readback", store, "--like", like, *SMALL)
    assert (code, err) == (0, "")
    kinds = [line.split('"')[3] for line in out.splitlines()]
    assert kinds == ["store", "queue", "msg", "msg", "msg", "time", "time", "get", "key", "log", "log", "log", "end"]
    like.write_text('{"t":"get"}\n')
    assert rmqstore("readback", store, "--like", like, *SMALL)[0] == 64
    assert rmqstore("readback", store, "--like", tmp_path / "none", *SMALL)[0] == 3


def test_readback_says_why_a_store_does_not_load(store, rmqstore):
    with open(store / "commitlog" / ("0" * 20), "r+b") as file:
        file.truncate(1000)
    code, out, err = rmqstore("readback", store, *SMALL)
    assert (code, out) == (2, '{"t":"store","load":false}\n')
    assert "1000" in err


def test_a_store_that_is_damaged_is_4(store, rmqstore):
    (file,) = (store / "index").iterdir()
    with open(file, "r+b") as f:
        f.truncate(1000)
    code, out, err = rmqstore("get", store, "-t", "T", "-q", "1", *SMALL)
    assert (code, out) == (4, "") and "1000" in err and "rmqstore repair" in err


def test_stat_watch_shows_growth(store, rmqstore, json_lines):
    code, lines = json_lines("stat", store, "--watch", "0.01", "--times", "2")
    assert code == 0 and [x["messages"] for x in lines] == [3, 3] and lines[1]["bytes_s"] == 0 and lines[0]["log_files"] == 1
    code, out, _ = rmqstore("stat", store, "-w", "0.01", "-n", "1", "-t", "none")
    assert code == 0 and out.splitlines()[0].split()[:2] == ["time", "messages/s"] and len(out.splitlines()) == 2
    assert rmqstore("stat", store, "--watch", "0")[0] == 64


def test_put_says_where_delayed_messages_are(store, rmqstore, monkeypatch):
    monkeypatch.setattr(sys, "stdin", _Stdin(b"later\n"))
    code, out, _ = rmqstore("put", store, "-t", "T", "-q", "1", "--delay-level", "3", *SMALL)
    assert code == 0 and "stored 1 message in SCHEDULE_TOPIC_XXXX, where they wait for T/1: queue offsets 0 to 0" in out


@pytest.mark.parametrize("whole", [(), ("--whole",)])
def test_put_reads_no_more_than_a_message_may_be(store, rmqstore, monkeypatch, whole):
    """A device without lines was read until memory was over, and Ctrl-C was not heard."""
    monkeypatch.setattr(put, "READ_MAX", 1 << 16)
    limits = ("-o", "message_size_max_bytes=65536", *SMALL)
    with open("/dev/zero", "rb") as zeros:
        stdin = _Stdin(b"")
        stdin.buffer = zeros
        monkeypatch.setattr(sys, "stdin", stdin)
        code, _, err = rmqstore("put", store, "-t", "T", *whole, *limits)
    assert code == 64 and "is longer than 65538 bytes, the limit of a body is 65536 (message_size_max_bytes): split it" in err
    monkeypatch.setattr(sys, "stdin", _Stdin(b"x" * 65536 + b"\r\n" + b"y" * 65537 + b"\n"))
    code, _, err = rmqstore("put", store, "-t", "T", "-q", "7", *limits)
    assert code == 64 and "body size is 65537 bytes, the limit is 65536" in err
    assert err.count("before that: stored 1 message in T/7") == 1
    monkeypatch.setattr(sys, "stdin", _Stdin(b""))
    assert "stored 1 message" in rmqstore("put", store, "-t", "T", "-q", "8", "--whole", *limits)[1]


def test_what_a_message_is_called_moves_no_terminal(store, rmqstore, monkeypatch):
    monkeypatch.setattr(sys, "stdin", _Stdin(b"x\n"))
    assert rmqstore("put", store, "-t", "E", "--tags", "\x1b[31mred", "-k", "a\x1b]0;b", *SMALL)[0] == 0
    _, out, _ = rmqstore("get", store, "-t", "E", *SMALL)
    assert "tags=\\x1b[31mred" in out and "keys=a\\x1b]0;b" in out and "\x1b" not in out


def test_no_message_of_these_tags_is_said(store, rmqstore):
    code, out, _ = rmqstore("get", store, "-t", "T", "--tags", "B", *SMALL)
    assert (code, out) == (1, "no message of T/1 with one of the tags B from offset 0 to 3\n")


def test_names_that_are_near_are_not_all_there_are(store, rmqstore, monkeypatch):
    """"the topics are Topic_1" of a store with others."""
    for topic in ("Topic_1", "orders"):
        monkeypatch.setattr(sys, "stdin", _Stdin(b"x\n"))
        assert rmqstore("put", store, "-t", topic, *SMALL)[0] == 0
    assert "the topics are Topic_1 and 2 more" in rmqstore("get", store, "-t", "Topic_2", *SMALL)[2]
