"""The plain loop over messages ends in no warning and no error, whatever is still in hand; messages that are to be kept or sent
elsewhere are copied."""
import asyncio
import copy
import gc
import logging
import multiprocessing
import pickle
import subprocess
import sys

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.access.reader._message import message_of_record
from tests.conftest import held
from tests.reader.test_fork_views import MODES, SMALL, in_child

FIELDS = ("topic", "queue_id", "queue_offset", "offset", "size", "raw", "properties_raw", "properties", "tags", "keys",
          "unique_key", "flag", "sys_flag", "magic", "body_crc", "body_crc_ok", "born_timestamp", "store_timestamp",
          "born_host", "store_host", "reconsume_times", "prepared_transaction_offset", "msg_id")
BODIES = [b"", b"x", b"body" * 25, bytes(range(256)) * 64]


def same(one, other):
    assert bytes(one.body) == bytes(other.body) == bytes(one) == bytes(other) and len(one.body) == len(other.body)
    assert [getattr(one, name) for name in FIELDS] == [getattr(other, name) for name in FIELDS]
    return True


@pytest.fixture(params=MODES.values(), ids=MODES)
def store(tmp_path, request):
    with MessageStore.open(tmp_path / "s", **SMALL, **request.param) as store:
        for i, body in enumerate(BODIES):
            store.put("T", body, tags="tag", keys=f"k{i} all", properties={"a": "b"}, flag=i, born_host="[2001:db8::1]:4242")
        assert store.wait_dispatched(30)
        yield store


# ---- closing with messages in hand

@pytest.mark.filterwarnings("error")
def test_the_plain_loop_ends_in_no_warning_and_no_error(store, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="rmq_store")
    for message in store.get("T", 0, 0):
        body = message.body
    store.close()
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    (said,) = (r for r in caplog.records if r.event == "CLOSED_WITH_LEASES")
    assert said.fields["leases"] == store.leases == 1
    assert bytes(message.body) == bytes(body) == BODIES[-1]
    with MessageStore.open(tmp_path / "s", **SMALL) as again:           # the lock is free
        assert again.max_offset("T", 0) == len(BODIES)
    assert bytes(message.body) == bytes(body) == BODIES[-1]
    del message, body, said
    caplog.clear()
    assert store.leases == 0 and not {one for one in held(str(tmp_path)) if "commitlog/" in one}
    store.close(strict=True)


@pytest.mark.filterwarnings("error")
def test_the_plain_loop_of_asyncio_and_of_consumers_too(tmp_path, caplog):
    async def main():
        store = await AsyncMessageStore.open(tmp_path / "s", **SMALL)
        await store.put_many("T", [b"1", b"2"])
        await store.wait_dispatched(30)
        async for message in store.subscribe("T", 0, offset=0):
            if message.queue_offset == 1:
                break
        consumer = await store.consumer("G", "T")
        batch = await consumer.poll()
        for kept in batch:
            assert kept.topic == "T"
        batch.ack()
        await store.close()
        assert bytes(message.body) == bytes(kept.body) == b"2" and len(batch) == 2
        with pytest.raises(errors.ViewsAlive):
            await store.close(strict=True)

    asyncio.run(main())
    gc.collect()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("block", [
    "store = MessageStore.open(sys.argv[1])\nfor message in store.get('T', 0, 0):\n    pass\nstore.close()\n",
    "with MessageStore.open(sys.argv[1]) as store:\n    for message in store.get('T', 0, 0):\n        pass\n"])
def test_a_script_with_a_plain_loop_writes_nothing_to_standard_error(tmp_path, block):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
    code = f"import logging, sys\nlogging.basicConfig()\nfrom rmq_store import MessageStore\n{block}print(bytes(message.body))"
    ran = subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code, str(tmp_path / "s")], capture_output=True,
                         text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "b'x'\n", "")


# ---- copies

@pytest.mark.parametrize("how", [lambda m: m.copy(), copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)),
                                 lambda m: pickle.loads(pickle.dumps(m, 0)), lambda m: message_of_record(m.raw)],
                         ids=["copy()", "copy", "deepcopy", "pickle", "pickle protocol 0", "raw"])
def test_a_copy_is_the_same_message_and_holds_no_file(store, how):
    found = [*store.get("T", 0, 0), *store.query_key("T", "all"), *store.scan("T"), store.message_at(0)]
    copies = [how(message) for message in found]
    assert all(map(same, copies, found)) and len(copies) == 3 * len(BODIES) + 1
    assert all(how(message).raw == message.raw for message in copies)
    body = copies[2].body
    del found
    assert store.leases == 0
    store.close(strict=True)
    assert bytes(body) == bytes(copies[2].body) == BODIES[2] and body.readonly
    del copies
    assert bytes(body) == BODIES[2]


def test_bytes_that_are_no_record_are_no_message(store):
    record = store.get("T", 0, 2)[0].raw
    for bad in (b"", record[:-1], record + b"\0", bytes(len(record)), record[:4] + b"\xff" + record[5:]):
        with pytest.raises(errors.CorruptionError, match="expected one whole record"):
            message_of_record(bad)
    with pytest.raises(TypeError):
        message_of_record(bytearray(record))


def test_results_are_pickled_with_their_messages(store):
    for result in (store.get("T", 0, 0), store.get("T", 0, 99), store.query_key("T", "all")):
        for made in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
            assert repr(made) == repr(result) and all(map(same, made, result)) and len(made) == len(result)
    one, many = store.put("T", b"x"), store.put_many("T", [b"a", b"b", b"c"])
    for made in (pickle.loads(pickle.dumps(one)), copy.copy(one)):
        assert (repr(made), made.msg_id, made.status) == (repr(one), one.msg_id, one.status)
    for made in (pickle.loads(pickle.dumps(many)), copy.copy(many)):
        assert (repr(made), made.offsets, made.queue_offsets) == (repr(many), many.offsets, many.queue_offsets)
        assert (made.msg_ids, made.store_timestamp, made.status) == (many.msg_ids, many.store_timestamp, many.status)


def test_what_belongs_to_its_process_says_what_to_send(store):
    with store.consumer("G", "T") as consumer:
        for kept, words in ((store.put_async("T", b"x"), "send its result"), (consumer.poll(1), "send its messages"),
                            (consumer, "send its messages"), (store, "send its path")):
            for how in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=words):
                    how(kept)


def answer(messages, answers):
    """In another process."""
    for _ in range(2):
        message = messages.get(timeout=60)
        answers.put((message, bytes(message.body), message.properties["a"]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_messages_go_through_a_queue_of_multiprocessing_and_back(store, method):
    context = multiprocessing.get_context(method)
    messages, answers = context.Queue(), context.Queue()
    worker = context.Process(target=answer, args=(messages, answers))
    worker.start()
    sent = store.get("T", 0, 1, 2).messages
    for message in sent:
        messages.put(message)
    for message in sent:
        back, body, value = answers.get(timeout=60)
        assert same(back, message) and (body, value) == (bytes(message.body), "b")
    worker.join(60)
    assert worker.exitcode == 0
    for queue in (messages, answers):
        queue.close()
        queue.join_thread()


def test_a_child_reads_copies_and_pickles_whatever_its_parent_found(store):
    with store.consumer("G", "T") as consumer:
        batch = consumer.poll()
        found = [*store.get("T", 0, 0), *store.query_key("T", "all"), *store.scan("T"), store.message_at(0), *batch]
        expected = [(m.raw, bytes(m.body), m.tags) for m in found]

        def look():
            assert [(m.raw, bytes(m.body), m.tags) for m in found] == expected
            assert all(map(same, [m.copy() for m in found], found))
            assert all(map(same, pickle.loads(pickle.dumps(found)), found))
            with pytest.raises(errors.ForkedProcess):
                batch.ack()

        assert in_child(look) == 0
        batch.ack()


def test_a_message_is_equal_to_its_copies_and_to_itself_read_again(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for body in (b"same", b"same", b"x"):
            store.put("T", body)
        assert store.wait_dispatched(30)
        one, two, three = store.get("T", 0, 0)
        again = [*store.get("T", 0, 0, 1), store.message_at(0), one.copy(), pickle.loads(pickle.dumps(one)), copy.deepcopy(one)]
        assert all(other == one and hash(other) == hash(one) for other in again)
        assert {one, two, three, *again} == {one, two, three} and len({one, two, three}) == 3
        assert one.copy() in [one] and one != two and one != b"same" and one != three
    assert again[2] == one          # also when the store is closed


def test_messages_of_an_inner_batch_are_equal_by_their_place(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        store.put_inner_batch("B", [b"same", b"same"])
        assert store.wait_dispatched(30)
        record = store.message_at(0)
        first, second = record.unwrap()
        assert first != second and first != record and first == record.unwrap()[0] == first.copy()
        assert {first, second, record} == {first.copy(), second.copy(), record.copy()}


def test_what_is_gone_under_a_view_is_told_to_who_copies_it(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"body")
        assert store.wait_dispatched(30)
        result = store.get("T", 0, 0)
    whole = result[0].copy()
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as log:
        log.write(bytes(whole.size))
    for how in (lambda: result[0].copy(), lambda: pickle.dumps(result[0]), lambda: pickle.dumps(result)):
        with pytest.raises(errors.CorruptionError, match="expected one whole record"):
            how()
    assert bytes(whole.body) == b"body"
