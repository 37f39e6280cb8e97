"""`rmqstore topics` and `rmqstore groups`: the two files of a broker, and queues that go."""
import json
import re

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 8192, "index_enabled": False}
BODY = b"x" * 7000


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    with MessageStore.open(path, **SMALL) as s:
        s.put("Old", b"x")
        for _ in range(3):
            s.put("T", BODY, queue_id=1)
        s.offsets.commit("G", "Old", 0, 1)
    for name in ("topics.json", "topics.json.bak"):         # a put enters its topic: these have lost their entries
        (path / "config" / name).unlink(missing_ok=True)
    return path


def test_topics_set_and_list(store, rmqstore, json_lines):
    assert rmqstore("topics", "list", store)[1].splitlines() == [
        f"{topic}  not in config/topics.json; 1 queues have or had messages" for topic in ("Old", "T")]
    code, out, err = rmqstore("topics", "set", store, "-t", "T", "-r", "8", "-w", "2", "-p", "r", "--order", "true")
    assert (code, err) == (0, "") and out == "T  read queues 8, write queues 2, perm r, order; 1 queues have or had messages\n"
    entry = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]["T"]
    assert (entry["readQueueNums"], entry["writeQueueNums"], entry["perm"], entry["order"]) == (8, 2, 4, True)
    rmqstore("topics", "set", store, "-t", "T", "--order", "false")
    code, (line,) = json_lines("topics", "list", store, "-t", "T")
    assert line["entry"]["order"] is False and line["entry"]["readQueueNums"] == 8 and line["queues"] == [1]
    assert rmqstore("topics", "list", store, "-t", "Nobody")[0] == 1


@pytest.mark.parametrize(("attributes", "said"), [
    ({"cleanup.policy": "COMPACTION"}, ", cleanup policy COMPACTION"), ({"cleanup.policy": "DELETE"}, ""), ({}, ""), (None, ""),
    ([], ""), ({"cleanup.policy": "PURGE"}, ", cleanup policy 'PURGE'"), ({"cleanup.policy": 7}, ", cleanup policy 7"),
    ({"cleanup.policy": ["COMPACTION"]}, ", cleanup policy ['COMPACTION']")])
def test_topics_list_says_the_cleanup_policy(store, rmqstore, attributes, said):
    rmqstore("topics", "set", store, "-t", "T")
    path = store / "config" / "topics.json"
    content = json.loads(path.read_text())
    content["topicConfigTable"]["T"]["attributes"] = attributes
    path.write_text(json.dumps(content))
    code, out, err = rmqstore("topics", "list", store, "-t", "T")
    assert (code, err) == (0, "")
    assert out == f"T  read queues 4, write queues 4, perm rw{said}; 1 queues have or had messages\n"


def test_topics_go(store, rmqstore, json_lines):
    rmqstore("topics", "set", store, "-t", "T")
    assert json_lines("topics", "unused", store, "--dry-run")[1] == [{"kind": "would_remove", "topic": "Old", "queue_id": 0}]
    code, out, _ = rmqstore("topics", "unused", store)
    assert (code, out.splitlines()[0]) == (0, "removed  Old/0")
    assert rmqstore("topics", "delete", store, "-t", "T")[0] == 0
    with MessageStore.open(store, readonly=True, **SMALL) as s:
        assert s.topics() == s.topic_table.names() == s.offsets.groups() == []


def test_expired_queues_go(store, rmqstore):
    assert rmqstore("topics", "expired", store, "-n")[1].splitlines()[0] == "0 queues would be removed"
    assert rmqstore("clean", store, "--hours", "0")[0] == 0
    code, out, _ = rmqstore("topics", "expired", store)
    assert (code, out.splitlines()) == (0, ["removed  Old/0", "1 queues removed"])


def test_groups(store, rmqstore, json_lines):
    code, out, _ = rmqstore("groups", "set", store, "-g", "G", "--retries", "3", "--consume", "false")
    assert (code, out) == (0, "G  retries 3, retry queues 1, may not consume; has consumed Old\n")
    code, (line,) = json_lines("groups", "list", store)
    assert (line["entry"]["retryMaxTimes"], line["topics"]) == (3, ["Old"])
    assert rmqstore("groups", "delete", store, "-g", "G", "--offsets")[1] == "deleted G, its offsets of 1 queues too\n"
    assert rmqstore("groups", "list", store) == (1, "", "")


def test_filters(store, rmqstore, json_lines):
    assert rmqstore("filters", "list", store) == (1, "no group has such a filter\n", "")
    code, out, _ = rmqstore("filters", "set", store, "-g", "G", "-t", "T", "--sql", "price > 3")
    assert code == 0 and re.fullmatch(r"G  T  since 20\d\d-.*: price > 3\n", out)
    code, (line,) = json_lines("filters", "list", store, "-g", "G", "-t", "T")
    assert (line["group"], line["topic"], line["sql"], line["dead"]) == ("G", "T", "price > 3", False)
    with MessageStore.open(store, **SMALL) as s:
        s.consumer_filters.unregister("G")
    assert "  gone since 20" in rmqstore("filters", "list", store)[1]
    assert rmqstore("filters", "delete", store, "-g", "G", "-t", "U")[0] == 1
    assert rmqstore("filters", "delete", store, "-g", "G")[1] == "deleted 1 filter of G\n"
    assert rmqstore("filters", "list", store) == (1, "no group has such a filter\n", "")


@pytest.mark.parametrize(("arguments", "words"), [
    (("filters", "set", "-g", "G", "-t", "T"), "filters set needs --group, --topic and --sql"),
    (("filters", "set", "-g", "G", "-t", "T", "--sql", "a >"), "sql"),
    (("filters", "set", "-g", "a/b", "-t", "T", "--sql", "a > 1"), "group 'a/b': give a name of up to 127 characters"),
    (("filters", "delete"), "filters delete needs --group"),
    (("filters", "delete", "-g", "Nobody"), "group Nobody has no filter"),
    (("topics", "set"), "topics set needs --topic"),
    (("topics", "set", "-t", "a/b"), "topic 'a/b': give a name of up to 127 characters"),
    (("topics", "set", "-t", "T", "-r", "0"), "--read-queues 0: give a number from 1 to 65535"),
    (("topics", "delete", "-t", "Nobody"), "topic Nobody does not exist"),
    (("topics", "unused"), "name those in use with --keep"),
    (("groups", "set"), "groups set needs --group"),
    (("groups", "set", "-g", "G", "--retries", "-1"), "--retries -1: give a number from 0"),
    (("groups", "delete", "-g", "Nobody"), "group Nobody does not exist"),
    (("topics", "compact", "-t", "Nobody"), "topic Nobody is not a compaction topic"),
])
def test_wrong_arguments(store, rmqstore, arguments, words):
    code, out, err = rmqstore(*arguments[:2], store, *arguments[2:])
    assert (code, out) == (1 if "Nobody" in arguments else 64, "") and words in err and "Traceback" not in err
    with MessageStore.open(store, readonly=True, **SMALL) as s:
        assert s.topics() == ["Old", "T"] and s.topic_table.names() == []


@pytest.mark.parametrize("perm", ['"7"', "null", "[]", "1.5"])
def test_a_permission_that_is_no_number_is_shown_as_it_is(store, rmqstore, perm):
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{"perm":' + perm + "}}}")
    code, out, _ = rmqstore("topics", "list", store)
    assert code == 0 and f"perm {json.loads(perm)!r}" in out
