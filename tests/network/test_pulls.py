"""Pulls that the network thread answers: at once, held and woken, expired, and what it leaves to Python."""
import struct

import pytest

from rmq_store.codec._codec import decode_record
from rmq_store.codec._java_hash import java_hash
from rmq_store.remoting.frame import BINARY, JSON, Frame, encode
from tests.network.conftest import PASSED
from tests.network.peer import Peer
from tests.network.test_sends import HEAD as SEND
from tests.soon import until

HEAD = {"consumerGroup": "G", "topic": "T", "queueId": "1", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "2",
        "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "3", "subscription": "", "expressionType": "TAG"}


def bodies(answer):
    found, at = [], 0
    while at < len(answer.body):
        record = decode_record(answer.body, at)
        found.append(bytes(record.body))
        at += record.size
    return found


def put(store, *found, **more):
    for body in found:
        store.put("T", body, queue_id=1, **more)
    store.wait_dispatched()


@pytest.mark.parametrize("serialize", [JSON, BINARY])
@pytest.mark.parametrize("code", [11, 361])
def test_messages_that_are_there_come_at_once(opened, passed, serialize, code):
    store, front = opened()
    put(store, *[b"%d" % n for n in range(40)])
    answer = Peer(front.address).ask(code, HEAD | {"queueOffset": "5"}, serialize=serialize)
    assert bodies(answer) == [b"%d" % n for n in range(5, 37)] and (answer.code, answer.remark) == (0, "FOUND")
    assert answer.ext == {"suggestWhichBrokerId": "0", "nextBeginOffset": "37", "minOffset": "0", "maxOffset": "40"}
    assert answer.body == b"".join(bytes(m.raw) for m in store.get("T", 1, 5, 32)) and passed == []


@pytest.mark.parametrize("count", [60, 300])
def test_many_requests_at_once_get_each_its_own_answer(opened, passed, count):
    """Short messages go in one piece with those of the next pull, long ones from the log, and sends are answered between. A
    request that has only begun holds up none of those before it. 300 answers are more than a socket takes."""
    store, front = opened()
    long = [bytes([n]) * 70_000 for n in range(4)]
    short = [b"%d" % n + bytes(900) for n in range(200)]
    for n, body in enumerate(short):
        store.put("T", body, queue_id=1)
        store.put("T", long[n % 4] if n < 8 else b"between", queue_id=2)
    store.wait_dispatched()
    peer = Peer(front.address)
    expected, requests = {}, []
    for n in range(count):
        queue_id, at, most = (2, n % 3, 4) if n % 5 == 4 else (1, n % 60 * 3, 32)
        if n % 7 == 6:
            requests.append(encode(Frame(310, n, SEND | {"e": "3"}, b"sent")))
            expected[n] = None
            continue
        asked = {"queueOffset": f"{at}", "queueId": f"{queue_id}", "maxMsgNums": f"{most}"}
        requests.append(encode(Frame(11, n, HEAD | asked)))
        expected[n] = (2 * long if queue_id == 2 else short)[at:at + most]
    half = len(requests[-1]) // 2
    peer.sock.sendall(b"".join(requests)[:-half])
    for left in range(count, 0, -1):
        if left == 1:
            peer.sock.sendall(requests[-1][-half:])
        answer = peer.receive()
        found = expected.pop(answer.opaque)
        assert answer.code == 0
        if found is not None:
            got = bodies(answer)        # three long ones are as much as a pull may bring
            assert got == found[:len(got)] and len(got) >= min(3, len(found))
    assert passed == [] and not expected


@pytest.mark.parametrize("bad", [struct.pack(">ii", -1, 0), struct.pack(">ii", 6, 2) + b"{x"])
def test_what_came_before_a_bad_frame_is_answered(opened, bad):
    """Also answers that wait for the next ones, to go in one piece with them."""
    store, front = opened()
    put(store, *[b"%d" % n for n in range(9)])
    for last in ([], [encode(Frame(310, 5, SEND | {"e": "3"}, b"sent"))]):
        peer = Peer(front.address)
        pulls = [encode(Frame(11, n, HEAD | {"queueOffset": f"{n}", "maxMsgNums": "3"})) for n in range(5)]
        peer.sock.sendall(b"".join(pulls + last) + bad)
        answers = {}
        while (answer := peer.receive()) is not None:
            answers[answer.opaque] = answer
        assert len(answers) == 5 + len(last) and {answer.code for answer in answers.values()} == {0}
        assert all(bodies(answers[n]) == [b"%d" % m for m in range(n, n + 3)] for n in range(5))


def test_tags_of_the_heartbeat_and_of_the_request(opened):
    store, front = opened(subscriptions=[("G", "", 0, ()), ("G", "T", 3, [java_hash("b")])])
    for n, tag in enumerate("abcab"):
        put(store, b"%d" % n, tags=tag)
    peer = Peer(front.address)
    assert bodies(peer.ask(11, HEAD)) == [b"1", b"4"]
    own = HEAD | {"sysFlag": "6", "subVersion": "0"}
    assert bodies(peer.ask(11, own | {"subscription": " a ||c "})) == [b"0", b"2", b"3"]
    assert bodies(peer.ask(11, own | {"subscription": "*"})) == [b"%d" % n for n in range(5)]
    answer = peer.ask(11, own | {"subscription": "none"})
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "5")


@pytest.mark.parametrize("change", [
    {"topic": "unknown"}, {"topic": "W"}, {"queueId": "4"}, {"queueId": "-1"}, {"queueOffset": "7"}, {"queueOffset": "-1"},
    {"subVersion": "4"}, {"consumerGroup": "other"}, {"sysFlag": "10"}, {"maxMsgNums": "x"},
    {"sysFlag": "6", "expressionType": "SQL92", "subscription": "a > 1"},
    {"sysFlag": "6", "subscription": "||".join(f"t{n}" for n in range(100))}])
def test_what_is_not_ordinary_goes_to_python(opened, passed, change):
    store, front = opened()
    put(store, b"x")
    assert Peer(front.address).ask(11, HEAD | change).code == PASSED
    assert passed[0].ext == HEAD | change


def test_a_pull_that_may_not_wait_is_answered_at_once(opened):
    store, front = opened()
    peer = Peer(front.address)
    answer = peer.ask(11, HEAD | {"sysFlag": "0"})
    assert (answer.code, answer.remark, answer.body) == (19, "NO_MESSAGE_IN_QUEUE", b"")
    put(store, b"x")
    answer = peer.ask(11, HEAD | {"sysFlag": "0", "queueOffset": "1"})
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (19, "OFFSET_OVERFLOW_ONE", "1")


def test_a_held_pull_is_woken_by_a_put_and_by_a_send(opened, passed):
    store, front = opened()
    waiting, sender = Peer(front.address), Peer(front.address)
    for n in range(20):
        opaque = waiting.send(11, HEAD | {"queueOffset": str(n)})
        if n % 2:
            store.put("T", b"%d" % n, queue_id=1)
        else:
            sender.ask(310, {"a": "P", "b": "T", "c": "", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0", "i": ""}, b"%d" % n)
        answer = waiting.receive()
        assert answer.opaque == opaque and bodies(answer) == [b"%d" % n]
    assert passed == []


def test_many_held_pulls_of_one_queue_and_of_many(opened):
    store, front = opened(topics=[("T", 6, 64, 64)])
    peers = [Peer(front.address) for _ in range(20)]
    for peer in peers:
        for queue_id in range(64):
            peer.send(11, HEAD | {"queueId": str(queue_id)})
    peers.pop().close()                 # its pulls go with it
    for queue_id in range(64):
        store.put("T", b"%d" % queue_id, queue_id=queue_id)
    for peer in peers:
        assert sorted(int(bodies(peer.receive())[0]) for _ in range(64)) == list(range(64))
        assert peer.ask(11, HEAD).code == 0


def test_more_than_one_connection_may_hold_is_answered_at_once(opened):
    _store, front = opened({"held_of_one": 3})
    peer, other = Peer(front.address), Peer(front.address)
    for _ in range(3):
        peer.send(11, HEAD)
    assert peer.ask(11, HEAD).code == 19 and front.held() == 3
    other.send(11, HEAD)
    assert other.ask(11, HEAD | {"sysFlag": "0"}).code == 19 and front.held() == 4


def test_a_message_of_another_tag_does_not_wake(opened):
    store, front = opened()
    peer = Peer(front.address)
    peer.send(11, HEAD | {"sysFlag": "6", "subscription": "right"})
    until(lambda: front.held() == 1)
    put(store, *[b"no"] * 5, tags="wrong")
    put(store, b"yes", tags="right")
    answer = peer.receive()
    assert bodies(answer) == [b"yes"] and answer.ext["nextBeginOffset"] == "6"


@pytest.mark.parametrize("options", [{"flush_backend": "fdatasync"}, {"flush_backend": "msync"}, {"commit_interval_max_ms": 1},
                                     {"flush_backend": "fdatasync", "flush_mode": "sync"}], ids=str)
def test_what_the_pool_holds_is_committed_for_a_held_pull(opened, options):
    """By the network thread itself where the commit goes to the page cache."""
    store, front = opened(**{"write_path": "pool", "commit_interval_max_ms": 0} | options)
    peer, producer = Peer(front.address), Peer(front.address)
    for n in range(50):
        peer.send(11, HEAD | {"queueOffset": str(n)})
        until(lambda: front.held() == 1)
        assert producer.ask(310, SEND | {"e": "1"}, b"%d" % n).code == 0
        assert bodies(peer.receive()) == [b"%d" % n]
    assert store.stats()["committed"] == store.stats()["wrote"]


TAKEN_AWAY = {"the topic": ([], ...), "its permission": ([("T", 2, 4, 4)], ...), "the queue": ([("T", 6, 1, 4)], ...),
              "the group": (..., [("other", "", 0, ())])}


@pytest.mark.parametrize("what", TAKEN_AWAY)
def test_a_held_pull_gets_nothing_that_was_taken_away(opened, passed, what):
    """Its client is to ask again, and Python tells it."""
    store, front = opened()
    peer = Peer(front.address)
    peer.send(11, HEAD)
    until(lambda: front.held() == 1)
    given = [("T", 6, 4, 4)], [("G", "", 0, ()), ("G", "T", 3, ())]
    front.publish(given[0] + [("other", 6, 4, 4)], given[1])        # which concerns nobody
    put(store, b"allowed")
    assert bodies(peer.receive()) == [b"allowed"]
    until(lambda: front.held() == 0)                # it is let go of after its answer
    peer.send(11, HEAD | {"queueOffset": "1"})
    until(lambda: front.held() == 1)
    front.publish(*(old if new is ... else new for old, new in zip(given, TAKEN_AWAY[what], strict=True)))
    put(store, b"secret")
    answer = peer.receive()
    assert (answer.code, answer.body, answer.ext["nextBeginOffset"]) == (20, b"", "1")
    until(lambda: front.held() == 0)
    assert peer.ask(11, HEAD | {"queueOffset": "1"}).code == PASSED


def test_a_held_pull_expires(opened):
    store, front = opened()
    put(store, b"x")
    peer = Peer(front.address)
    answer = peer.ask(11, HEAD | {"queueOffset": "1", "suspendTimeoutMillis": "1"})
    assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (19, "OFFSET_OVERFLOW_ONE", "1")


def test_what_a_pull_commits_is_passed_on(opened, passed):
    store, front = opened()
    put(store, b"x")
    peer = Peer(front.address)
    for _ in range(10):
        assert peer.ask(11, HEAD | {"sysFlag": "3", "commitOffset": "7"}).code == 0
    assert peer.ask(1).code == PASSED
    assert [(f.code, f.flag, f.ext) for f in passed[:-1]] == [
        (15, 2, {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "7"})]


def test_pulls_are_counted_as_gets(opened):
    store, front = opened()
    put(store, *[b"x" * 100] * 10)
    peer = Peer(front.address)
    size = len(peer.ask(11, HEAD).body)
    assert peer.ask(11, HEAD | {"queueOffset": "10", "sysFlag": "0"}).code == 19
    assert peer.ask(11, HEAD | {"queueOffset": "99"}).code == PASSED            # Python gets, and counts it
    found = {name: store.stats()[name] for name in ("gets_found", "gets_missed", "got_messages", "got_bytes")}
    assert found == {"gets_found": 1, "gets_missed": 1, "got_messages": 10, "got_bytes": size}
    store.get("T", 1, 0)
    assert store.stats()["gets_found"] == 2 and store.stats()["got_bytes"] == 2 * size


def test_a_peer_that_does_not_read_its_messages_holds_nothing(opened):
    store, front = opened(segment_size_bytes=1 << 22)
    put(store, *[b"x" * 30_000] * 100)
    slow, quick = Peer(front.address), Peer(front.address)
    for _ in range(200):
        slow.send(11, HEAD)
    for _ in range(20):
        assert quick.ask(11, HEAD).code == 0
    assert all(slow.receive().code in (0, 20) for _ in range(200))


def test_a_store_that_closes_lets_held_pulls_go(opened):
    store, front = opened()
    peer = Peer(front.address)
    for queue_id in range(4):
        peer.send(11, HEAD | {"queueId": str(queue_id)})
    assert peer.ask(11, HEAD | {"sysFlag": "0"}).code == 19
    store.close()
    assert peer.receive() is None


def test_cleaning_beside_pulls(opened):
    store, front = opened(segment_size_bytes=1 << 16)
    peer = Peer(front.address)
    for _ in range(20):
        put(store, *[b"x" * 1000] * 50)
        for _ in range(5):
            peer.send(11, HEAD | {"queueOffset": str(store.min_offset("T", 1))})
        store.clean(hours=0)
        assert all(peer.receive().code in (0, 20, PASSED) for _ in range(5))


def test_a_held_pull_looks_behind_what_one_look_takes(opened):
    """The last of many messages that come at once is the one: no other message wakes the pull again."""
    store, front = opened(filter_bytes_max=200)         # ten entries
    pull = HEAD | {"sysFlag": "6", "subscription": "right", "maxMsgNums": "1"}
    peer = Peer(front.address)
    peer.send(11, pull)
    until(lambda: front.held() == 1)
    store.put_many("T", [{"body": b"no", "tags": "wrong"}] * 500 + [{"body": b"yes", "tags": "right"}], queue_id=1)
    answer = peer.receive()
    while answer.code == 20:            # the client asks at once for what is behind
        answer = peer.ask(11, pull | {"queueOffset": answer.ext["nextBeginOffset"]})
    assert bodies(answer) == [b"yes"] and answer.ext["nextBeginOffset"] == "501"
