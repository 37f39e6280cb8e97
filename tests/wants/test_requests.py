"""Every request code while the broker's store wants for something: an answer comes, the connection and the others continue, and
what was asked works when the want is over."""
from functools import partial

import pytest

from rmq_store import Broker, MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.transaction import service
from tests.broker.peer import Peer
from tests.wants.requests import REQUESTS, as_text
from tests.wants.world import SIZES, WANTS


@pytest.fixture
def broker(tmp_path, monkeypatch):
    probe = ProbeIo(keep_bytes=False)
    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "open", partial(MessageStore.open, _io=probe))
        broker = Broker.open(tmp_path / "store", waitTimeMillsInSendQueue=60_000, **SIZES)
    monkeypatch.setattr(service, "LOOK_MS", 50)     # how long a look for a half message waits for dispatch
    with broker:
        broker.probe = probe
        with Peer(broker.address) as peer:
            peer.put("T", b"first", properties={"KEYS": "k"})
            peer.put("Gone")
            peer.ask(200, {"groupName": "G", "retryMaxTimes": 3})
            peer.beat("c1", producers=["P"], consumers={"G": {"T": "*"}})
            broker.store.wait_dispatched(10)
            for queue in range(4):
                peer.ask(15, consumerGroup="G", topic="T", queueId=queue, commitOffset=0)
        yield broker
        probe.clear()


def test_every_code_has_a_row(broker):
    assert set(broker._processors._table) == set(REQUESTS)


def wrong_answers(peer, n):
    return {code: as_text(answer) for code, (ask, good) in REQUESTS.items() if (answer := ask(peer, n)).code not in good}


def test_every_code_is_answered_without_a_want(broker):
    with Peer(broker.address) as peer:
        peer.beat("c1", producers=["P"], consumers={"G": {"T": "*"}})
        assert wrong_answers(peer, 0) == {}


@pytest.mark.parametrize("nth", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 5, 8, 13))])
@pytest.mark.parametrize("want", WANTS)
def test_every_code_under_a_want(broker, want, nth):
    kinds, code = WANTS[want]
    with Peer(broker.address) as peer, Peer(broker.address) as other:
        peer.beat("c1", producers=["P"], consumers={"G": {"T": "*"}})
        for n, (number, (ask, good)) in enumerate(REQUESTS.items(), 1):
            broker.probe.fail(kinds, nth, code, sticky=True)
            answer = ask(peer, n)                   # the peer's own timeout tells a hang
            assert answer.code in good or answer.remark, f"{number} under {want}: {as_text(answer)}"
            assert other.ask(30, topic="T", queueId=0).code == 0
            broker.probe.clear()
            assert broker.store.wait_dispatched(20), f"dispatch stands still after {number} under {want}"
            assert other.put("T", b"on").code == 0, f"after {number} under {want}"
        assert wrong_answers(peer, 1000) == {}
    assert broker.store.stats()["errno"] == 0
