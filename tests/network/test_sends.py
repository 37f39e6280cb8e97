"""Sends that the network thread answers: what is stored, what the answer says, and what it leaves to Python."""
import threading
import time

import pytest

from rmq_store import MessageStore
from rmq_store.network._front import Front
from rmq_store.remoting.frame import BINARY, JSON, ONEWAY
from tests.network.conftest import PASSED
from tests.network.peer import LIMIT_S, Peer, serving
from tests.soon import until

HEAD = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "3",
        "i": "TAGS\1a\2WAIT\1true\2UNIQ_KEY\1ABC", "j": "2", "k": "false", "m": "false", "n": "broker-a"}
LONG = {"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId", "f": "sysFlag",
        "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode", "m": "batch"}


def stored(store, queue_id=1):
    store.wait_dispatched()
    return list(store.get("T", queue_id, 0, 32))


@pytest.mark.parametrize("serialize", [JSON, BINARY])
@pytest.mark.parametrize("code", [310, 10])
@pytest.mark.parametrize("compat, kept", [
    ("4.9", {"TAGS": "a", "UNIQ_KEY": "ABC", "CLUSTER": "DefaultCluster"}),
    ("5.x", {"TAGS": "a", "UNIQ_KEY": "ABC", "WAIT": "true", "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion",
             "TRACE_ON": "true"})])
def test_a_send_is_stored_as_a_broker_stores_it(opened, passed, serialize, code, compat, kept):
    store, front = opened(compat=compat)
    peer = Peer(front.address)
    ext = HEAD if code == 310 else {LONG[name]: value for name, value in HEAD.items() if name in LONG}
    answer = peer.ask(code, ext, b"body", serialize=serialize)
    assert answer.code == 0 and answer.serialize == serialize and answer.version == (479 if compat == "5.x" else 409)
    [message] = stored(store)
    assert message.properties == kept
    assert bytes(message.body) == b"body"
    assert (message.flag, message.reconsume_times, message.born_timestamp) == (3, 2, 1700000000000)
    assert message.born_host == peer.name and message.store_host == store.options.store_host
    assert answer.ext.pop("transactionId", None) == ("ABC" if compat == "5.x" else None)
    assert answer.ext == {"msgId": message.msg_id, "queueId": "1", "queueOffset": "0", "MSG_REGION": "DefaultRegion",
                          "TRACE_ON": "true"}
    assert not store.scrub().findings and passed == []


def test_the_bytes_are_those_of_a_put(opened):
    store, front = opened()
    peer = Peer(front.address)
    peer.ask(310, HEAD | {"i": "TAGS\1a\2KEYS\1k"}, b"x" * 1000)
    [sent] = stored(store)
    put = store.put("T", b"x" * 1000, queue_id=2, properties=b"TAGS\1a\2KEYS\1k\2CLUSTER\1DefaultCluster", flag=3,
                    reconsume_times=2, born_timestamp=1700000000000, born_host=sent.born_host)
    other = bytearray(store.message_at(put.offset).raw)
    own = bytearray(sent.raw)
    for record in (own, other):
        for at, size in ((12, 4), (20, 8), (28, 8), (56, 8)):      # queue, positions and store time are each one's own
            record[at:at + size] = bytes(size)
    assert own == other


def test_the_facts_of_the_broker_are_in_records_and_answers(opened):
    store, front = opened({"cluster": "C1", "region": "R1", "trace_on": False, "version": 400}, compat="5.x")
    answer = Peer(front.address).ask(310, HEAD, b"body")
    assert (answer.version, answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == (400, "R1", "false")
    [message] = stored(store)
    assert {name: message.properties[name] for name in ("CLUSTER", "MSG_REGION", "TRACE_ON")} == {
        "CLUSTER": "C1", "MSG_REGION": "R1", "TRACE_ON": "false"}


def test_a_fact_that_cannot_stand_in_json_is_refused(opened):
    with pytest.raises(ValueError, match="region"):
        opened({"region": 'a"b'})


@pytest.mark.parametrize("change", [
    {"b": "unknown"}, {"b": "R"}, {"e": "4"}, {"e": "x"}, {"d": ""}, {"m": "true"}, {"m": "1"}, {"g": "-1"}, {"j": "-1"},
    {"i": "DELAY\x013"}, {"i": "TRAN_MSG\1true"}, {"i": "TIMER_DELAY_SEC\x011"}, {"i": "A\1b\2A\1c"},
    {"i": "\2".join(f"k{n}\1v" for n in range(100))}, {"i": "UNIQ_KEY\1a\"b"}, {"i": "a\1" + "x" * 32766},
    {"f": "99999999999"}])
def test_what_is_not_ordinary_goes_to_python(opened, passed, change):
    store, front = opened(compat="5.x")
    assert Peer(front.address).ask(310, HEAD | change, b"body").code == PASSED
    assert passed[0].ext == HEAD | change and passed[0].body == b"body" and store.stats()["wrote"] == 0


def test_a_missing_field_and_too_large_a_body_go_to_python(opened, passed):
    _store, front = opened(message_size_max_bytes=1000)
    peer = Peer(front.address)
    assert peer.ask(310, {k: v for k, v in HEAD.items() if k != "g"}, b"body").code == PASSED
    assert peer.ask(310, HEAD, bytes(1001)).code == PASSED
    assert peer.ask(310, HEAD, bytes(1000)).code == 0


def test_puts_with_hooks_go_to_python(opened, passed):
    store, front = opened()
    peer = Peer(front.address)
    hook = lambda message: None         # noqa: E731
    store.add_put_hook(hook)
    assert peer.ask(310, HEAD, b"body").code == PASSED
    store.remove_put_hook(hook)
    assert peer.ask(310, HEAD, b"body").code == 0


def test_a_negative_queue_id_leaves_the_choice_to_the_broker(opened):
    _store, front = opened()
    peer = Peer(front.address)
    assert {peer.ask(310, HEAD | {"e": "-1"}, b"b").ext["queueId"] for _ in range(8)} == {"0", "1", "2", "3"}


def test_a_new_table_counts_from_the_next_request_on(opened):
    _store, front = opened()
    peer = Peer(front.address)
    for n in range(50):
        front.publish([("T", 6, 1, 1)] if n % 2 else [], [])
        assert peer.ask(310, HEAD | {"e": "0"}, b"b").code == (0 if n % 2 else PASSED)


def test_a_oneway_send_gets_no_answer(opened):
    store, front = opened()
    peer = Peer(front.address)
    peer.send(310, HEAD, b"one", flag=ONEWAY)
    assert peer.ask(310, HEAD, b"two").opaque == 2
    assert [bytes(m.body) for m in stored(store)] == [b"one", b"two"]


@pytest.mark.parametrize("write_path", ["pool", "mmap"])
def test_synchronous_sends_are_answered_when_they_are_durable(opened, passed, write_path):
    store, front = opened(flush_mode="sync", write_path=write_path)
    peers = [Peer(front.address) for _ in range(4)]
    for _ in range(25):
        for peer in peers:
            for _ in range(4):
                peer.send(310, HEAD, b"x" * 100)
        for peer in peers:
            for _ in range(4):
                answer = peer.receive()
                assert answer.code == 0
                assert store.stats()["flushed"] > int(answer.ext["msgId"][-16:], 16)
    assert len(passed) == 0 and store.max_offset("T", 1) <= 400


def test_a_synchronous_send_that_does_not_wait_is_answered_at_once(opened):
    store, front = opened(flush_mode="sync")
    assert Peer(front.address).ask(310, HEAD | {"i": "WAIT\1false"}, b"x").code == 0
    store.flush()


def test_more_than_the_pool_holds_waits_for_room(opened, passed):
    store, front = opened({"wait_in_send_queue_ms": 60_000}, pool_window_size_bytes=1 << 16, pool_window_count=2,
                          write_path="pool", segment_size_bytes=1 << 18)
    peer = Peer(front.address)
    body = b"x" * 4000
    sender = threading.Thread(target=lambda: [peer.send(310, HEAD, body) for _ in range(2000)])
    sender.start()
    codes = [peer.receive().code for _ in range(2000)]
    sender.join()
    assert set(codes) == {0} and passed == []
    store.wait_dispatched()
    assert store.max_offset("T", 1) == 2000


def test_a_send_that_waited_too_long_for_python_is_told(tmp_path):
    held, begun, asked = threading.Event(), threading.Event(), []

    def on_request(_connection, frame):
        asked.append(frame.code)
        begun.set()
        held.wait(LIMIT_S)
        return frame.answer(PASSED)

    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20) as store:
        front = Front("127.0.0.1", 0, on_request, lambda connection: None)
        front.use(store, wait_in_send_queue_ms=20)
        with serving(front):
            first, second = Peer(front.address), Peer(front.address)
            first.send(99)
            assert begun.wait(LIMIT_S)
            second.send(310, HEAD, b"x")        # the topic is not known here: Python would make it
            second.send(99)
            until(lambda: front.counts()["passed"] == 3)
            until_then = time.monotonic() + 0.02
            until(lambda: time.monotonic() > until_then)
            held.set()
            assert first.receive().code == PASSED
            answer = second.receive()
            assert (answer.code, answer.language) == (2, "JAVA")
            assert answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue")
            assert second.receive().code == PASSED and asked == [99, 99]


def test_a_store_that_closes_ends_its_front(opened):
    store, front = opened(flush_mode="sync")
    peer = Peer(front.address)
    for _ in range(50):
        peer.send(310, HEAD, b"x")
    store.close()
    while peer.receive() is not None:
        pass
    assert not front.counts()["connections"]


def test_a_readonly_store_is_refused(opened, tmp_path):
    store, _front = opened()
    front = Front("127.0.0.1", 0, lambda c, f: None, lambda c: None)
    with MessageStore.open(store.path, readonly=True) as reader, pytest.raises(ValueError, match="read-only"):
        front.use(reader)
