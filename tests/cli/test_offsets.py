"""`rmqstore offsets`: show, lag, commit, reset."""
import pytest

from rmq_store import MessageStore


@pytest.fixture
def store(tmp_path):
    """Five messages in two queues; group G has consumed two of queue 0."""
    path = tmp_path / "store"
    with MessageStore.open(path, segment_size_bytes=1 << 16, index_enabled=False) as s:
        for i in range(5):
            s.put("T", b"x", queue_id=i % 2)
        s.offsets.commit("G", "T", 0, 2)
    return path


def test_show_and_lag(store, rmqstore, json_lines):
    code, out, _ = rmqstore("offsets", "show", store)
    assert code == 0 and [line.split() for line in out.splitlines()][1:] == [["G", "T", "0", "2"]]
    code, out, _ = rmqstore("offsets", "lag", store)
    assert [line.split() for line in out.splitlines()[1:3]] == [["G", "T", "0", "2", "0", "3", "1", "0"],
                                                                 ["G", "T", "1", "-1", "0", "2", "2", "0"]]
    assert "3 messages to consume" in out
    assert [line["behind"] for line in json_lines("offsets", "lag", store, "-g", "G")[1]] == [1, 2]
    assert rmqstore("offsets", "show", store, "-g", "nobody")[0] == 1


def test_commit_and_reset(store, rmqstore, json_lines):
    code, out, _ = rmqstore("offsets", "commit", store, "-g", "G", "-t", "T", "-q", "1", "-i", "1")
    assert code == 0 and "G  T/1  none -> 1" in out
    code, out, _ = rmqstore("offsets", "reset", store, "-g", "G", "-t", "T", "--end")
    assert code == 0 and "G  T/0  2 -> 3" in out and "G  T/1  1 -> 2" in out
    code, lines = json_lines("offsets", "reset", store, "-g", "G", "-t", "T", "--time", "0")
    assert code == 0 and [(x["queue_id"], x["before"], x["offset"]) for x in lines] == [(0, 3, 0), (1, 2, 0)]
    code, lines = json_lines("offsets", "show", store)
    assert [x["offset"] for x in lines] == [0, 0]


@pytest.mark.parametrize(("arguments", "words"), [
    (["commit"], "needs --group and --topic"), (["commit", "-g", "G", "-t", "T"], "needs --queue and --offset"),
    (["reset", "-g", "G", "-t", "T"], "needs --time, --offset or --end"),
    (["reset", "-g", "G", "-t", "T", "-i", "9"], "goes from 0 to 3"),
    (["reset", "-g", "G", "-t", "T", "--time=-1"], "--time -1: give ms since 1970, 0 or more; --end"),
    (["reset", "-g", "G", "-t", "T", "--time=-5"], "--time -5"),
    (["reset", "-g", "G", "-t", "none", "--end"], "no queue of it"),
    (["commit", "-g", "G", "-t", "T", "-q", "1", "-i", "3"], "--offset 3: T/1 goes from 0 to 2"),
    (["commit", "-g", "a@b", "-t", "T", "-q", "0", "-i", "0"], "group is 'a@b'")])
def test_what_is_refused(store, rmqstore, arguments, words):
    code, _, err = rmqstore("offsets", arguments[0], store, *arguments[1:])
    assert code == 64 and words in err


@pytest.mark.parametrize(("place", "words"), [
    (["-t", "Tt", "-q", "0"], "topic 'Tt' of {} never had a message: the topics are T"),
    (["-t", "T", "-q", "7"], "queue 7 of topic 'T' never had a message: the queues of the topic are 0, 1")])
def test_a_commit_of_what_never_was(store, rmqstore, place, words):
    """A misspelt name would be kept, and the group would begin where nobody wanted."""
    code, _, err = rmqstore("offsets", "commit", store, "-g", "G", *place, "-i", "0")
    assert code == 1 and words.format(store) in err
    assert len(rmqstore("offsets", "show", store)[1].splitlines()) == 2
