"""Queues are removed while cleaning waits for a message view: the withdrawn file still has its name, so the next open of the
store has it again, and its records are older than the removal."""
import pytest

from rmq_store import MessageStore
from tests.cleaning.aged import SMALL
from tests.images import take_image


def full_of(store, topic, count=5):
    for n in range(count):
        store.put(topic, b"%s old%d" % (topic.encode(), n))


def bodies(store, topic):
    return [bytes(m.body) for m in store.scan(topic, 0)] if topic in store.topics() else []


def delete(store):
    """As the others: up to the yield before the file is withdrawn, the rest behind it."""
    yield
    store.delete_topics("T")


def expire(store):
    yield
    assert store.clean_expired_queues().removed == [("T", 0), ("U", 0)]


def delete_before(store):
    """Another removal reads what the first one has written."""
    store.delete_topics("T")
    yield
    store.delete_topics("U")


@pytest.mark.parametrize("new", [0, 3])
@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("remove", [delete, expire, delete_before])
def test_nothing_comes_back_and_nothing_is_lost(tmp_path, remove, end, new):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        store.put("Fill", bytes(1000))
        full_of(store, "T")
        full_of(store, "U")
        while store.max_log_offset < 4 * SMALL["segment_size_bytes"]:
            store.put("Fill", bytes(1000))
        assert store.wait_dispatched(30)
        store.flush()
        steps = remove(store)
        next(steps)
        view = next(iter(store.scan("Fill", 0)))
        low = store.min_log_offset
        assert store.clean(0).held and store.min_log_offset > low
        next(steps, None)
        wanted = [b"new%d" % n for n in range(new)]
        for body in wanted:
            store.put("T", body)
        if end == "killed":
            root = take_image(root, tmp_path / "image")
    with MessageStore.open(root, **SMALL) as store:
        assert store.wait_dispatched(30)
        assert store.min_log_offset == low and view.queue_offset == 0
        assert bodies(store, "T") == wanted
        assert bodies(store, "U") == ([b"U old%d" % n for n in range(5)] if remove is delete else [])
