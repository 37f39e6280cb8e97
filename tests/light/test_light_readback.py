"""`rmqstore readback` of light queues: each stored message has one row, and each light queue a row for each of its entries."""
import json

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


def rows(out, kind):
    return [row for row in map(json.loads, out.splitlines()) if row["t"] == kind]


def test_each_message_has_one_row(tmp_path, rmqstore):
    with MessageStore.open(tmp_path / "s", **SMALL, enable_lmq=True, enable_multi_dispatch=True) as store:
        lists = [{"INNER_MULTI_DISPATCH": f"%LMQ%a,%LMQ%b,%LMQ%c{i % 2}"} for i in range(6)]
        at = [store.put("T", b"%d" % i, keys=f"k{i}", properties=lists[i]).offset for i in range(6)]
    code, out, _ = rmqstore("readback", tmp_path / "s")
    assert code == 0 and [row["phyOffset"] for row in rows(out, "msg")] == at
    assert rows(out, "end")[0]["messages"] == 6
    lights = [(row["topic"], row["cqOffset"], row["cqPhyOffset"]) for row in rows(out, "light")]
    assert lights == [*(("%LMQ%a", i, at[i]) for i in range(6)), *(("%LMQ%b", i, at[i]) for i in range(6)),
                      *(("%LMQ%c0", i, at[2 * i]) for i in range(3)), *(("%LMQ%c1", i, at[2 * i + 1]) for i in range(3))]
    assert len(set(out.splitlines())) == len(out.splitlines())
    assert next(row["hits"] for row in rows(out, "key") if (row["topic"], row["key"]) == ("T", "k3")) == [at[3]]


def test_a_message_that_only_light_queues_have_is_in_the_rows_of_the_log(tmp_path, rmqstore):
    with MessageStore.open(tmp_path / "s", **SMALL, enable_lmq=True, enable_multi_dispatch=True) as store:
        at = store.put("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}).offset
        own = store.put("%LMQ%d", b"its own", queue_id=0).offset
        store.wait_dispatched(10)
        store.delete_topics("T")
    _, out, _ = rmqstore("readback", tmp_path / "s")
    assert [(row["phyOffset"], row["kind"]) for row in rows(out, "log") if row["phyOffset"] in (at, own)] == [
        (at, "unqueued"), (own, "msg")]
    assert [row["phyOffset"] for row in rows(out, "msg")] == [own]
