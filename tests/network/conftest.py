"""A front over a store, whose Python half notes what it was asked."""
import pytest

from rmq_store import MessageStore
from rmq_store.network._front import Front
from tests.network.peer import serving

PASSED = 99         # the code of Python's answers


@pytest.fixture
def passed():
    """Requests that went to Python."""
    return []


@pytest.fixture
def connections():
    """What these requests came on."""
    return []


@pytest.fixture
def opened(tmp_path, passed, connections):
    """Opens a store and a front over it: opened(facts, **options) -> (store, front)."""
    stores, fronts = [], []

    def on_request(connection, frame):
        passed.append(frame)
        connections.append(connection)
        return frame.answer(PASSED)

    def make(facts=None, topics=(("T", 6, 4, 4), ("R", 4, 4, 4), ("W", 2, 4, 4)),
             subscriptions=(("G", "", 0, ()), ("G", "T", 3, ())), **options):
        options = {"segment_size_bytes": 1 << 20, "compat": "4.9"} | options
        store = MessageStore.open(tmp_path / str(len(stores)), **options)
        stores.append(store)
        front = Front("127.0.0.1", 0, on_request, lambda connection: None)
        front.use(store, **({"offsets": store.offsets.rows} | (facts or {})))
        front.publish(topics, subscriptions)
        server = serving(front)
        server.__enter__()
        fronts.append(server)
        return store, front

    yield make
    for server in fronts:
        server.__exit__(None, None, None)
    for store in stores:
        store.close()
