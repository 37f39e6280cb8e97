"""A broker with a name server, over a small store of the test."""
import pytest

from rmq_store import Broker
from tests.broker.peer import Peer


@pytest.fixture
def broker(tmp_path):
    # On a busy machine a send may wait longer than a client should.
    with Broker.open(tmp_path / "store", profile="test", waitTimeMillsInSendQueue=60_000) as broker:
        yield broker


@pytest.fixture
def peer(broker):
    with Peer(broker.address) as peer:
        yield peer


@pytest.fixture
def names(broker):
    with Peer(broker.namesrv_address) as peer:
        yield peer
