"""How many replicas have to be in sync (RocketMQ 5: inSyncReplicas, minInSyncReplicas, enableAutoInSyncReplicas)."""
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.status import PutStatus
from tests.replication.pairs import connected, joined, master, slave
from tests.soon import until

SYNC = {"role": "sync_master", "slave_timeout_ms": 20_000, "total_replicas": 3}


def all_joined(m: MessageStore, count: int) -> None:
    until(lambda: sum(r.offset >= 0 for r in m.replicas()) == count, 20_000)


def test_too_few_in_sync_store_nothing(tmp_path: Path) -> None:
    with master(tmp_path / "m", **SYNC, in_sync_replicas=3) as m, slave(tmp_path / "1", m) as s:
        all_joined(m, 1)
        for put in (lambda: m.put("T", b"x"), lambda: m.put_many("T", [b"x"]), lambda: m.put_async("T", b"x"),
                    lambda: m.put_many("T", [{"body": b"x", "tags": "a"}])):
            with pytest.raises(errors.InSyncReplicasNotEnough, match=r"in sync: 2, .*s is 3") as e:
                put()
            assert e.value.status == PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert m.max_log_offset == 0
        assert m.put("T", b"x", wait=False).status == PutStatus.PUT_OK
        assert m.put("T", b"x", properties={"WAIT": "false"}).status == PutStatus.PUT_OK
        with slave(tmp_path / "2", m) as other:
            all_joined(m, 2)
            result = m.put("T", b"x")
            assert result.status == PutStatus.PUT_OK
            assert min(s.max_log_offset, other.max_log_offset) >= result.offset + result.size
            futures = [m.put_async("T", b"%d" % i) for i in range(50)]
            assert {f.result().status for f in futures} == {PutStatus.PUT_OK}
            assert min(s.max_log_offset, other.max_log_offset) == m.max_log_offset


def test_one_acknowledgement_of_two(tmp_path: Path) -> None:
    with master(tmp_path / "m", **{**SYNC, "slave_timeout_ms": 100}, in_sync_replicas=3) as m, slave(tmp_path / "s", m), \
            connected(m) as mute:
        mute.report(0)
        all_joined(m, 2)
        assert m.put("T", b"x").status == PutStatus.FLUSH_SLAVE_TIMEOUT
        assert m.put_async("T", b"x").result().status == PutStatus.FLUSH_SLAVE_TIMEOUT


def test_auto(tmp_path: Path) -> None:
    """A put is content with the slaves that are in sync, down to min_in_sync_replicas."""
    with master(tmp_path / "m", **SYNC, in_sync_replicas=3, min_in_sync_replicas=2, auto_in_sync_replicas_enabled=True) as m:
        with pytest.raises(errors.InSyncReplicasNotEnough):
            m.put("T", b"x")
        with slave(tmp_path / "s", m) as s:
            all_joined(m, 1)
            result = m.put("T", b"x")
            assert result.status == PutStatus.PUT_OK
            assert s.max_log_offset >= result.offset + result.size


def test_all_in_sync(tmp_path: Path) -> None:
    with master(tmp_path / "m", **{**SYNC, "slave_timeout_ms": 200}, all_ack_in_sync_state_set=True) as m, \
            slave(tmp_path / "s", m):
        all_joined(m, 1)
        assert m.put("T", b"x").status == PutStatus.PUT_OK
        with connected(m) as mute:
            mute.report(m.max_log_offset)
            all_joined(m, 2)
            assert m.put("T", b"x").status == PutStatus.FLUSH_SLAVE_TIMEOUT


def test_one_slave_that_came_back_counts_once(tmp_path: Path) -> None:
    """What is left of its first connection, of which nobody has heard the end yet, is no second replica."""
    with master(tmp_path / "m", **{**SYNC, "slave_timeout_ms": 500}, in_sync_replicas=3) as m, connected(m) as before, \
            connected(m) as other:
        before.report(0)
        other.report(0)
        all_joined(m, 2)
        lost, good = m.put_async("T", b"x"), m.put_async("T", b"y")
        end = m.max_log_offset
        until(lambda: [r.sent_bytes for r in m.replicas()] == [end, end], 20_000)
        before.report(end)
        with connected(m) as after:
            after.report(end // 2)
            until(lambda: sorted(r.sent_bytes for r in m.replicas()) == [end // 2, end, end], 20_000)
            after.report(end)
            until(lambda: sum(r.offset == end for r in m.replicas()) == 2, 20_000)
            assert lost.result().status == PutStatus.FLUSH_SLAVE_TIMEOUT
            other.report(end)                       # that is another one
            until(good.done, 20_000)
            assert good.result().status == PutStatus.PUT_OK


@pytest.mark.parametrize(("options", "words"), [
    ({"in_sync_replicas": 2}, "in_sync_replicas is 2, and total_replicas 1"),
    ({"total_replicas": 3, "in_sync_replicas": 2, "min_in_sync_replicas": 3},
     "min_in_sync_replicas is 3, and in_sync_replicas 2"),
    ({"all_ack_in_sync_state_set": True}, "total_replicas is 1"),
    ({"ha_send_heartbeat_interval_ms": 500, "ha_housekeeping_interval_ms": 500},
     "ha_send_heartbeat_interval_ms is 500 ms, and ha_housekeeping_interval_ms 500 ms"),
])
def test_options_that_cannot_be(tmp_path: Path, options: dict, words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words):
        MessageStore.open(tmp_path / "s", **options)


def test_names_of_rocketmq(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", brokerRole="SYNC_MASTER", haListenPort=0, totalReplicas=3, inSyncReplicas=2,
                           minInSyncReplicas=1, enableAutoInSyncReplicas=True, segment_size_bytes=65536,
                           message_size_max_bytes=1000) as m:
        assert m.put("T", b"x").status == PutStatus.PUT_OK      # min 1: the master alone, as RocketMQ


def test_a_future_hears_of_an_acknowledgement_behind_a_stall(tmp_path: Path) -> None:
    """The slave was silent for longer than others waited, who read what slaves say meanwhile; the put's deadline is far."""
    with master(tmp_path / "m", role="sync_master", slave_timeout_ms=600_000, flush_mode="sync") as m, connected(m) as peer:
        peer.report(0)
        joined(m)
        told: list[PutStatus] = []
        first = m.put_async("T", b"x")
        first.add_done_callback(lambda f: told.append(f.result().status))
        until(lambda: m.stats()["flushed"] == m.max_log_offset, 20_000)
        for _ in range(2):
            with pytest.raises(TimeoutError, match="not with a slave"):
                m.put_async("T", b"y").result(timeout=0.05)
        assert told == []
        until(lambda: m.replicas()[0].sent_bytes == m.max_log_offset, 20_000)
        peer.report(m.max_log_offset)
        until(lambda: told == [PutStatus.PUT_OK], 20_000)
