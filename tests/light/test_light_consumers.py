"""Groups that read light queues: lmqConsumerOffset.json, batches that fail in the middle, and the commands."""
import io
import json
import shutil
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.cli.main import main

ON = {"profile": "dev", "enable_lmq": True, "enable_multi_dispatch": True}


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_offsets_are_in_their_own_table(tmp_path, compat):
    """LMQ-04 of upstream: one normal and two light commits."""
    with MessageStore.open(tmp_path, compat=compat, **ON) as s:
        s.offsets.commit("g", "T", 1, 5)
        s.offsets.commit("%LMQ%g", "%LMQ%a", 0, 7)
        s.offsets.commit("%LMQ%g", "%LMQ%b", 0, 8)
        with pytest.raises(ValueError, match="queue 0 alone"):
            s.offsets.commit("%LMQ%g", "%LMQ%a", 1, 7)
    found = json.loads((tmp_path / "config" / "lmqConsumerOffset.json").read_text().replace("{1:", '{"1":'))
    assert found["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 7, "%LMQ%b@%LMQ%g": 8}
    assert found["offsetTable"] == {"T@g": {"1": 5}}
    assert not (tmp_path / "config" / "consumerOffset.json").exists()
    with MessageStore.open(tmp_path, compat=compat, **ON) as s:
        keys = ("%LMQ%g", "%LMQ%a", 0), ("%LMQ%g", "%LMQ%c", 0), ("g", "T", 1)
        assert [s.offsets.query(*key) for key in keys] == [7, -1, 5]


def test_offsets_of_before_count(tmp_path):
    with MessageStore.open(tmp_path, profile="dev") as s:
        s.offsets.commit("g", "T", 0, 5)
    with MessageStore.open(tmp_path, **ON) as s:
        assert s.offsets.query("g", "T", 0) == 5
        s.offsets.commit("g", "T", 0, 6)
    shutil.copy(tmp_path / "config" / "lmqConsumerOffset.json", tmp_path / "kept")
    with MessageStore.open(tmp_path, **ON) as s:
        assert s.offsets.query("g", "T", 0) == 6


def test_a_batch_of_a_light_queue_that_fails_in_the_middle(tmp_path):
    """Its messages have other queue offsets in their own queue."""
    with MessageStore.open(tmp_path, **ON) as s:
        for i in range(6):
            s.put("T", b"plain")
            s.put("T", b"%d" % i, light_queues=["b", "a"])
        assert s.wait_dispatched(10)
        with s.consumer("%LMQ%g", "%LMQ%a") as consumer:
            batch = consumer.poll(timeout=10)
            assert [bytes(m.body) for m in batch] == [b"%d" % i for i in range(6)]
            batch._settle(4)
            again = consumer.poll(timeout=10)
            assert [bytes(m.body) for m in again] == [b"4", b"5"]
            again.ack()
        assert s.offsets.query("%LMQ%g", "%LMQ%a", 0) == 6


def test_commands(tmp_path, monkeypatch, capsys):
    store, options = str(tmp_path / "s"), ["--profile", "dev", "-o", "enable_lmq=true", "-o", "enable_multi_dispatch=true"]
    lines = io.TextIOWrapper(io.BytesIO(b"one\ntwo\n"))
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["put", store, "-t", "T", "--light-queue", "a", "--light-queue", "%LMQ%b", *options]) == 0
    capsys.readouterr()
    assert main(["get", store, "-t", "%LMQ%b", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["topics", "list", store]) == 0
    assert "%LMQ%a  a light queue; 1 queues" in capsys.readouterr().out


def test_a_dead_letter_is_in_no_light_queue(tmp_path):
    """Else its consumer gets it again, and again makes it a dead letter."""
    with MessageStore.open(tmp_path, **ON) as s:
        s.put("T", b"1", light_queues=["dev", "other"])
        assert s.wait_dispatched(30)
        with s.consumer("%LMQ%g", "%LMQ%dev", max_retries=0) as consumer:
            assert consumer.retry(consumer.poll(timeout=30)[0]) == "%DLQ%%LMQ%g"
        assert s.wait_dispatched(30)
        assert s.max_offset("%LMQ%dev", 0) == s.max_offset("%LMQ%other", 0) == 1
        dead = s.get("%DLQ%%LMQ%g", 0, 0)[0].properties
        assert "INNER_MULTI_DISPATCH" not in dead and "INNER_MULTI_QUEUE_OFFSET" not in dead
