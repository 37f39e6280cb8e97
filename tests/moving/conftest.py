"""Stores with all that a migration meets: delayed messages delivered and waiting, retries, transactions, groups."""
import pytest

from rmq_store import MessageStore
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 50, "index_entries_max": 400,
         "manifest_interval_ms": 20}


def rows(root, topics=None):
    """What a reader of the log meets: [(topic, queue, body)], in order."""
    with MessageStore.open(root, readonly=True) as store:
        return [(m.topic, m.queue_id, bytes(m.body)) for kind, _, _, m in store.log_records()
                if kind == "msg" and (topics is None or m.topic in topics)]


def got(root, topic, queue=0):
    """What a consumer of one queue gets: bodies, in order."""
    with MessageStore.open(root, readonly=True) as store:
        return [bytes(m.body) for m in store.scan(topic, queue)]


@pytest.fixture
def mixed(made, tmp_path):
    return take_image(made, tmp_path / "mixed")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """17 delayed messages that were delivered, three that wait, and one of every other kind; closed."""
    root = tmp_path_factory.mktemp("made") / "mixed"
    with MessageStore.open(root, delay_levels="1s 1h", **SMALL) as store:
        for i in range(40):
            store.put("T", b"plain %d" % i, queue_id=i % 2, tags="a", keys=f"k{i}")
        for i in range(17):
            store.put("T", b"delayed %d" % i, queue_id=2, delay_level=1)
        for i in range(3):
            store.put("T", b"waits %d" % i, queue_id=2, delay_level=2)
        got = 0
        while got < 17:
            result = store.get("T", 2, got, wait=20)
            got += len(result)
        del result
        store.put("%RETRY%G", b"retry")
        store.put("%DLQ%G", b"dead")
        store.put("RMQ_SYS_TRANS_HALF_TOPIC", b"half")
        store.put("T", b"prepared", sys_flag=0x4)
        store.put("T", b"committed", sys_flag=0x8, prepared_transaction_offset=123)
        store.put("T", b"rolled back", sys_flag=0xC)
        store.put("Empty", b"")
        store.put("Bytes", bytes(range(256)), properties={"ä": "ö"}, flag=7, reconsume_times=3, born_host="[::1]:5",
                  born_timestamp=12345)
        store.offsets.commit("G", "T", 0, 5)
        store.wait_dispatched(10)
    return root
