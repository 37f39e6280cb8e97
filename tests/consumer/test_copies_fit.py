"""A message that a put has taken can fail in its consumer, whatever its properties and whatever the limits are by then: it is
tried again, or is a dead letter with its body and its own properties; the run continues, and what is behind it is handled."""
import asyncio
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore
from rmq_store.codec._codec import encode_record
from rmq_store.codec._layout import MAGIC_BLANK
from rmq_store.codec.copies import copied_properties
from rmq_store.codec.properties import decode_properties
from rmq_store.errors import MessageIllegal

SMALL = {"segment_size_bytes": 1 << 20, "index_enabled": False, "delay": "store_only"}
LONG = "x" * 32_000
ODD = b"TAGS\x01a\x02odd\x01one\x01two\x02half\x01\xff\xfe\x02"

# name -> (what put takes, the body, the options when it is consumed, tried again)
CASES = {
    "full": ({"properties": b"k\x01" + b"x" * 32_765}, b"bad", {}, False),
    "nearly full": ({"properties": {"k": "x" * 32_740}}, b"bad", {}, False),
    "room for some": ({"properties": {"k": "x" * 32_700}}, b"bad", {}, False),
    "full and a checksum now": ({"properties": {"a": LONG, "b": "y" * 697, "TRACE_ON": "true", "REAL_QID": "1" * 10,
                                                "CLUSTER": "c" * 20}}, b"bad", {"record_crc": True}, False),
    "no encoder writes them": ({"properties": ODD}, b"bad", {}, True),
    "longer when decoded": ({"properties": b"k\x01" + b"\xff" * 20_000}, b"bad", {}, True),
    "larger than the limit now": ({}, b"bad" * 30_000, {"message_size_max_bytes": 10}, True),
    "a topic longer than the limit now": ({}, b"bad", {"topic_size_max_bytes": 1}, True),
    "fills a file of the log": ({}, b"x" * ((1 << 20) - 8 - 91 - len("jobs") - 200), {}, True),
    "counted to the end": ({"reconsume_times": (1 << 31) - 1}, b"bad", {}, False),
}


def prepared(path, case):
    put, body, options, again = CASES[case]
    with MessageStore.open(path, **SMALL) as store:
        store.put("jobs", body, **put)
        store.put("jobs", b"good")
    return body, SMALL | options, again


def check(store, case, body, again, handled):
    assert handled.count(b"good") == 1
    assert handled.count(body) == (2 if again else 1)
    assert store.wait_dispatched(30)
    dead, = store.scan("%DLQ%G", 0)
    assert bytes(dead.body) == body and dead.reconsume_times == ((1 << 31) - 1 if case == "counted to the end" else 1 + again)
    own = CASES[case][0].get("properties", {})
    own = decode_properties(own) if isinstance(own, bytes) else own
    internal = ("REAL_QID", "TRACE_ON", "CLUSTER")
    assert {name: dead.properties[name] for name in own if name not in internal} == {
        name: value for name, value in own.items() if name not in internal}
    rows = [row for row in store.lag("G") if row.topic == "jobs"]
    assert [row.behind for row in rows] == [0]


@pytest.mark.parametrize("case", CASES)
def test_a_run_continues(tmp_path, case):
    body, options, again = prepared(tmp_path, case)
    with MessageStore.open(tmp_path, **options) as store:
        handled, stop = [], threading.Event()

        def handle(message):
            handled.append(bytes(message.body))
            if len(handled) == 2 + again:
                stop.set()
            if handled[-1] == body:
                raise RuntimeError("cannot be handled")

        with store.consumer("G", "jobs", max_retries=1) as consumer:
            consumer.run(handle, stop=stop)
        check(store, case, body, again, handled)


@pytest.mark.parametrize("case", CASES)
def test_a_run_of_asyncio_continues(tmp_path, case):
    body, options, again = prepared(tmp_path, case)
    handled = []

    async def main():
        async with await AsyncMessageStore.open(tmp_path, **options) as store:
            stop = asyncio.Event()

            async def handle(message):
                handled.append(bytes(message.body))
                if len(handled) == 2 + again:
                    stop.set()
                if handled[-1] == body:
                    raise RuntimeError("cannot be handled")

            async with await store.consumer("G", "jobs", max_retries=1) as consumer:
                await consumer.run(handle, stop=stop)
            check(store.store, case, body, again, handled)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_dead_letter_tells_as_much_of_its_origin_as_fits(tmp_path, caplog):
    with MessageStore.open(tmp_path, **SMALL) as store:
        store.put("jobs", b"bad", properties={"k": "x" * 32_700})
        store.wait_dispatched()
        with store.consumer("G", "jobs") as consumer, consumer.poll(timeout=5) as batch:
            assert batch.retry(batch[0]) == "%DLQ%G"
        store.wait_dispatched()
        dead, = store.scan("%DLQ%G", 0)
        assert dead.properties["RETRY_TOPIC"] == dead.properties["DLQ_ORIGIN_TOPIC"] == "jobs"
        assert "ORIGIN_MESSAGE_ID" not in dead.properties
    assert [r.fields["lacks"] for r in caplog.records if r.event == "RETRY_TOO_LARGE"] == [
        "ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("short", [*range(0, 230, 23), 199, 200, 300])
def test_what_fills_a_file_of_the_log_is_refused_or_dead_with_its_body(tmp_path, short, crc):
    group, body = "G" * 120, b"x" * (8192 - 8 - 91 - 1 - short)
    small = SMALL | {"segment_size_bytes": 8192}
    with MessageStore.open(tmp_path, **small) as store:
        try:
            store.put("T", body)
        except MessageIllegal:
            assert short < 200
            return
    with MessageStore.open(tmp_path, record_crc=crc, store_host="[::1]:10911", **small) as store:
        store.wait_dispatched()
        with store.consumer(group, "T") as consumer, consumer.poll(timeout=5) as batch:
            assert batch.retry(batch[0], delay_level=-1) == "%DLQ%" + group
        store.wait_dispatched()
        dead, = store.scan("%DLQ%" + group, 0)
        assert bytes(dead.body) == body


@pytest.mark.untraced       # another program writes the log
def test_what_another_program_filled_a_file_with_blocks_no_queue(tmp_path, caplog):
    small = SMALL | {"segment_size_bytes": 8192}
    body = b"x" * (8192 - 8 - 91 - 1)
    record = encode_record("T", body, physical_offset=0, store_timestamp=1_700_000_000_000, born_timestamp=1_700_000_000_000)
    with MessageStore.open(tmp_path, **small) as store:
        store.put("T", b"y" * (len(body) - 200))
        store.put("T", b"good" * 50)
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.write(record + (8).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big", signed=True))
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    with MessageStore.open(tmp_path, **small) as store:
        store.wait_dispatched()
        with store.consumer("G", "T") as consumer, consumer.poll(timeout=5) as batch:
            assert [len(m.body) for m in batch] == [len(body), 200]
            assert batch.retry(batch[0]) == "%DLQ%G"
        assert store.wait_dispatched(30)
        dead, = store.scan("%DLQ%G", 0)
        assert len(dead.body) == 0
        assert bytes(store.message_by_id(dead.properties["ORIGIN_MESSAGE_ID"]).body) == body
    assert [r.fields["lacks"] for r in caplog.records if r.event == "RETRY_TOO_LARGE"] == ["the body"]


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_copied_properties_always_fit(compat, crc):
    for size in range(32_700, 32_767):
        raw = b"k\x01" + b"x" * (size - 2)
        found, lacks = copied_properties(raw, ["gone"], {"a": "1", "long": "y" * 60}, compat, crc)
        assert len(found) + (1 + 20 if crc and not found.endswith(b"\x02") else 20 if crc else 0) <= 32_767
        assert found.startswith(raw) or (crc and lacks[0] == "k")
        assert ("long" in lacks) == (b"long" not in found)
