"""What a new entry of topics.json and subscriptionGroup.json may be: names and values that a broker takes, and nothing else."""
import json

import pytest

from rmq_store import MessageStore, errors

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        yield store


@pytest.mark.parametrize("name", [5, None, b"T", "", True])
@pytest.mark.parametrize("call", [
    lambda table, name: table.set(name), lambda table, name: table.add(name),
    lambda table, name: table.set_cleanup_policy(name, "COMPACTION"),
    lambda table, name: table.set_queue_type(name, "BatchCQ")])
def test_a_name_that_is_none_leaves_nothing(store, name, call):
    with pytest.raises(errors.ArgumentIllegal, match="topic is "):
        call(store.topic_table, name)
    assert store.topic_table.names() == []
    store.topic_table.set_cleanup_policy("C", "COMPACTION")     # as if nothing had been
    store.topic_table.flush()
    assert store.topic_table.names() == ["C"]


@pytest.mark.parametrize("name", ["c f g", "a.b", "ä", "x" * 256, "a\n"])
def test_a_name_that_a_broker_refuses(store, name):
    for call in (lambda: store.topic_table.set(name), lambda: store.topic_table.set_cleanup_policy(name, "COMPACTION"),
                 lambda: store.topic_table.set_queue_type(name, "BatchCQ"), lambda: store.group_table.set(name)):
        with pytest.raises(errors.ArgumentIllegal, match="give a name of up to 255 characters"):
            call()
    assert store.topic_table.names() == store.group_table.names() == []


def test_a_name_that_is_in_the_file_stays(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.topic_table.write_entries({"a.b": {}})
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert store.topic_table.set("a.b", perm=4)["perm"] == 4


@pytest.mark.parametrize(("field", "value"), [
    ("perm", 99), ("perm", -1), ("perm", "rw"), ("perm", True), ("readQueueNums", -5), ("writeQueueNums", 65_536),
    ("order", 1), ("topicFilterType", "ODD"), ("topicName", "U"), ("attributes", ["x"]), ("attributes", {"a": 1}),
    ("topicSysFlag", 1 << 31), ("queues", 2)])
def test_a_value_that_no_broker_has(store, field, value):
    for call in (store.topic_table.set, store.topic_table.add):
        with pytest.raises(errors.ArgumentIllegal, match=f"{field} is "):
            call("T", **{field: value})
    assert store.topic_table.get("T") is None
    assert store.topic_table.set("T", perm=7, readQueueNums=0, order=True, attributes={"a": "b"})["perm"] == 7


@pytest.mark.parametrize(("field", "value"), [("retryMaxTimes", "3"), ("consumeEnable", 1), ("retryQueueNums", -1)])
def test_a_value_that_no_group_has(store, field, value):
    with pytest.raises(errors.ArgumentIllegal, match=f"{field} is "):
        store.group_table.set("G", **{field: value})
    assert store.group_table.names() == []


def test_topics_of_4_9_have_no_attributes(tmp_path):
    with MessageStore.open(tmp_path / "s", compat="4.9", **SMALL) as store:
        for call in (lambda: store.topic_table.set_cleanup_policy("C", "COMPACTION"),
                     lambda: store.topic_table.set_queue_type("C", "BatchCQ")):
            with pytest.raises(errors.ArgumentIllegal, match=r"compat 4\.9 has no attributes: open it with compat='5\.x'"):
                call()
        assert store.topic_table.names() == []


def test_a_topic_that_add_makes_with_batch_queues_has_them_on_the_device(store, tmp_path):
    store.topic_table.add("B", attributes={"queue.type": "BatchCQ"})
    found = json.loads((tmp_path / "s" / "config" / "topics.json").read_text())
    assert found["topicConfigTable"]["B"]["attributes"] == {"queue.type": "BatchCQ"}
