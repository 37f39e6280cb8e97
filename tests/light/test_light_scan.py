"""scan and export of light queues, and what scan says of a topic."""
import io

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError
from rmq_store.upkeep.moving.lines import export_lines
from rmq_store.upkeep.moving.messages import copy_messages

LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True, "segment_size_bytes": 1 << 16, "index_enabled": False}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **LIGHT) as s:
        for i in range(4):
            s.put("T", b"%d" % i, queue_id=i % 2, light_queues=["a"] if i else ["a", "b"])
        s.put("%LMQ%own", b"own", queue_id=1)
        assert s.wait_dispatched(30)
    return root


def bodies(messages):
    return [bytes(m.body) for m in messages]


def test_scan_of_a_light_queue(root):
    with MessageStore.open(root, readonly=True) as s:
        assert bodies(s.scan("%LMQ%a")) == bodies(s.scan("%LMQ%a", 0)) == [b"0", b"1", b"2", b"3"]
        assert bodies(s.scan("%LMQ%a", begin=2)) == [b"2", b"3"] and bodies(s.scan("%LMQ%b")) == [b"0"]
        assert bodies(s.scan("%LMQ%own")) == [b"own"] and bodies(s.scan("%LMQ%none")) == []
        assert bodies(s.scan("%LMQ%a", end_time=0)) == []


def test_scan_of_a_topic_is_what_the_log_has(tmp_path):
    with MessageStore.open(tmp_path / "s", **LIGHT) as s:
        s.put("T", b"prepared", sys_flag=4)
        s.put("T", b"plain")
        s.put("Gone", b"deleted")
        assert s.wait_dispatched(30)
        s.delete_topics("Gone")
        assert bodies(s.scan("T")) == [b"prepared", b"plain"] and bodies(s.scan("Gone")) == [b"deleted"]
        assert [bodies(s.scan(t, q)) for t in ("T", "Gone") for q in s.queues(t)] == [[b"plain"]]


def test_export_and_copy_name_the_topic_that_has_the_messages(root, tmp_path):
    for call in (lambda: export_lines(root, io.BytesIO(), topics=["%LMQ%a"]),
                 lambda: copy_messages(root, tmp_path / "copy", topics=["T", "%LMQ%a"])):
        with pytest.raises(ConfigError, match=r"'%LMQ%a' is a light queue, .* as 'T'"):
            call()
    assert not (tmp_path / "copy").exists()
    assert export_lines(root, io.BytesIO(), topics=["T"]).messages == 4
    assert export_lines(root, io.BytesIO(), topics=["%LMQ%own"], whole=True).messages == 1
    assert export_lines(root, io.BytesIO(), topics=["%LMQ%none"]).unseen == ["%LMQ%none"]
