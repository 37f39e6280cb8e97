"""Held pulls by tag: a message wakes those it may be for. The store's counts of gets tell how many pulls were tried."""
import random
import time

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.remoting.frame import Frame, encode
from tests.flush.test_ring_waits import thread_of, threads
from tests.network.peer import Peer
from tests.network.test_pulls import HEAD, SEND, bodies, put
from tests.soon import until

OWN = HEAD | {"sysFlag": "6"}           # with a subscription of its own


def hold(front, peer, count, **change):
    """So many pulls more, which are held when it returns."""
    before = front.held()
    peer.sock.sendall(b"".join(encode(Frame(11, n, OWN | change)) for n in range(count)))
    until(lambda: front.held() == before + count)


def tried(store):
    return store.stats()["gets_missed"] + store.stats()["gets_found"]


@pytest.mark.parametrize("options", [{}, {"consumequeue_ext_enabled": True}], ids=str)
def test_a_message_wakes_no_pull_of_another_tag(opened, options):
    """Nor are those looked through, or tried, that wait for other tags in the same queue."""
    store, front = opened(**options)
    many, one = Peer(front.address), Peer(front.address)
    hold(front, many, 2000, subscription="rare")
    hold(front, many, 500, subscription="rare || seldom")
    hold(front, one, 1, subscription="often || x")
    before = tried(store)
    for n in range(50):
        put(store, b"%d" % n, tags="other")
    put(store, b"yes", tags="often")
    answer = one.receive()
    assert bodies(answer) == [b"yes"] and answer.ext["nextBeginOffset"] == "51"
    assert tried(store) - before <= 2
    put(store, b"both", tags="seldom")
    for _ in range(500):
        answer = many.receive()
        assert bodies(answer) == [b"both"] and answer.ext["nextBeginOffset"] == "52"
    until(lambda: front.held() == 2000)
    assert tried(store) - before <= 600


def test_many_pulls_that_one_message_wakes_are_all_answered(opened):
    """More than one round tries, of several connections, some of which go in the middle."""
    store, front = opened()
    peers = [Peer(front.address) for _ in range(4)]
    for n, peer in enumerate(peers):
        hold(front, peer, 1000, subscription="a" if n % 2 else "*", maxMsgNums="1")
    gone = Peer(front.address)
    hold(front, gone, 1000, subscription="a")
    put(store, b"x", tags="a")
    gone.close()
    for peer in peers:
        assert {peer.receive().opaque for _ in range(1000)} == set(range(1000))
    until(lambda: front.held() == 0)


def test_pulls_whose_time_is_over_are_answered_where_they_are(opened):
    """What has come since and does not match lies behind them."""
    store, front = opened()
    peer = Peer(front.address)
    hold(front, peer, 700, subscription="none", suspendTimeoutMillis="2000")
    put(store, *[b"no"] * 5, tags="other")
    answers = [peer.receive() for _ in range(700)]
    told = {(answer.code, answer.remark, answer.ext["nextBeginOffset"]) for answer in answers}
    assert told == {(19, "OFFSET_OVERFLOW_ONE", "5")}
    until(lambda: front.held() == 0)


def test_pulls_whose_time_is_over_do_not_wait_for_all_that_a_message_wakes(opened):
    """The network thread stands in a send while their time passes; the send then wakes more pulls than twenty rounds try."""
    probe, before = ProbeIo(keep_bytes=False), threads()
    _store, front = opened(_io=probe)
    peer = Peer(front.address)
    hold(front, peer, 3000, subscription="a", maxMsgNums="1")
    probe.gate("mono_ns", thread=int(thread_of("rmq-network", before).name))
    peer.sock.sendall(b"".join(encode(Frame(11, 10_000 + n, OWN | {"subscription": "b", "suspendTimeoutMillis": "1"}))
                               for n in range(50)) + encode(Frame(310, 20_000, SEND | {"i": "TAGS\x01a"}, b"x")))
    probe.wait_standing(1, 30)
    end = time.monotonic() + 1.5            # the thread looks once a second whose time is over
    until(lambda: time.monotonic() > end)
    probe.ungate()
    order = [peer.receive().opaque for _ in range(3051)]
    assert set(order) == {*range(3000), *range(10_000, 10_050), 20_000}
    last = max(order.index(n) for n in range(10_000, 10_050))
    assert last < 1000


def test_a_pull_with_many_tags_counts_for_several(opened):
    _store, front = opened({"held_of_one": 20})
    peer = Peer(front.address)
    hold(front, peer, 2, subscription="||".join(f"t{n}" for n in range(64)))       # nine each
    hold(front, peer, 2, subscription="*")
    assert peer.ask(11, OWN | {"subscription": "x"}).code == 19


def test_a_queue_that_is_emptied_and_filled_again(opened):
    store, front = opened()
    put(store, *[b"old"] * 5, tags="a")
    peer = Peer(front.address)
    hold(front, peer, 1, subscription="b", queueOffset="5")
    store.delete_topics("T")
    hold(front, peer, 1, subscription="a")
    put(store, b"new", tags="a")
    assert bodies(peer.receive()) == [b"new"]
    put(store, *[b"new"] * 5, tags="b")
    assert bodies(peer.receive()) == [b"new"]


@pytest.mark.parametrize("options", [{}, {"consumequeue_ext_enabled": True}, {"write_path": "pool"}, {"filter_bytes_max": 200},
                                     {"batches": True}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_every_pull_gets_the_first_message_of_its_tags(opened, options, seed):
    """Pulls and messages in any order; "Aa" and "BB" have the same hash code, so that the client takes one of them out."""
    rng, batches = random.Random(seed), "batches" in options
    store, front = opened(**({"compat": "5.x"} if batches else options))
    if batches:
        store.topic_table.add("T", attributes={"queue.type": "BatchCQ"})
    peers = [Peer(front.address) for _ in range(3)]
    tags = ["Aa", "BB", "c", "d", "e", "f"]
    came, asked = [], {}
    for _ in range(300):
        if rng.random() < 0.5:
            found = [(b"%d" % (len(came) + i), rng.choice(tags[:rng.choice((2, 6))])) for i in range(rng.choice((1, 1, 3, 40)))]
            if batches:
                tag = found[0][1]
                found = [(body, tag) for body, _ in found]
                store.put_inner_batch("T", [body for body, _ in found], queue_id=1, properties={"TAGS": tag})
            else:
                store.put_many("T", [{"body": body, "tags": tag} for body, tag in found], queue_id=1)
            came += found
            if rng.random() < 0.5:
                store.wait_dispatched()
        else:
            wanted = rng.sample(tags, rng.choice((1, 1, 2, 3))) if rng.random() < 0.8 else tags
            at = rng.randint(max(0, len(came) - 5), len(came))
            store.wait_dispatched()
            peer = rng.randrange(3)
            text = "*" if wanted is tags else "||".join(wanted)
            opaque = peers[peer].send(11, OWN | {"subscription": text, "queueOffset": str(at), "maxMsgNums": "1"})
            asked[peer, opaque] = at, set(wanted) | ({"Aa", "BB"} if {"Aa", "BB"} & set(wanted) else set())
    for tag in tags:
        body = b"%d" % len(came)
        if batches:
            store.put_inner_batch("T", [body], queue_id=1, properties={"TAGS": tag})
        else:
            put(store, body, tags=tag)
        came.append((body, tag))
    assert store.wait_dispatched(10)
    while asked:
        peer = next(iter(asked))[0]
        answer = peers[peer].receive()
        at, wanted = asked.pop((peer, answer.opaque))
        first = next(n for n in range(at, len(came)) if came[n][1] in wanted)
        if answer.code == 20:           # there was more than a look takes: the client asks for what is behind
            following = int(answer.ext["nextBeginOffset"])
            assert at < following <= first or options
            text = "||".join(sorted(wanted))
            opaque = peers[peer].send(11, OWN | {"subscription": text, "queueOffset": str(following), "maxMsgNums": "1"})
            asked[peer, opaque] = following, wanted
            continue
        assert answer.code == 0, (answer, at, first)
        if not batches:
            assert bodies(answer)[0] == came[first][0]
            assert first < int(answer.ext["nextBeginOffset"])
    until(lambda: front.held() == 0)
