"""A coroutine or generator function that a store would call and never run: refused where it is added, or where it is called."""
import functools
import threading
import warnings

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


async def coroutine(*arguments):
    raise AssertionError("nobody awaits it")


def generator(*arguments):
    yield


async def async_generator(*arguments):
    yield


class Calls:
    async def __call__(self, *arguments):
        raise AssertionError("nobody awaits it")


UNRUN = [coroutine, functools.partial(coroutine), Calls(), generator, async_generator]
ADDS = {
    "dispatch": lambda s, f: s.add_dispatcher("d", f), "callback": lambda s, f: s.on_check("G", f),
    "hook": lambda s, f: s.add_put_hook(f), "listener": lambda s, f: s.add_arriving_listener(f)}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        yield made


@pytest.mark.parametrize("name", ADDS)
@pytest.mark.parametrize("call", UNRUN, ids=["coroutine", "partial", "object", "generator", "async generator"])
def test_what_calling_would_not_run_is_refused(store, name, call):
    for opened in (store, AsyncMessageStore(store)) if name == "callback" else (store,):
        with pytest.raises(errors.ArgumentIllegal, match=f"{name} is .*function, and calling it runs nothing of it"):
            ADDS[name](opened, call)
    assert store.dispatchers() == [] and store.put_hooks == []
    store.put("T", b"x")


@pytest.mark.parametrize("hidden", [lambda *a: coroutine(*a), lambda *a: generator(*a)], ids=["coroutine", "generator"])
def test_a_dispatcher_that_hides_one_stops_at_the_batch(store, hidden):
    store.put("T", b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.add_dispatcher("d", hidden)
        until(lambda: not store.dispatchers()[0].running)
    found = store.dispatchers()[0]
    assert (found.offset, found.messages) == (0, 0) and "of which nothing has run" in found.error
    seen = []
    store.add_dispatcher("d", lambda messages: seen.extend([bytes(m.body) for m in messages]))
    until(lambda: seen == [b"x"])


def test_the_others_that_hide_one(store, caplog):
    called = threading.Event()

    def hidden(*arguments):
        called.set()
        return coroutine(*arguments)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.add_arriving_listener(hidden)
        store.put("T", b"x")
        assert called.wait(30)
        until(lambda: "of which nothing has run" in caplog.text)
        store.add_put_hook(hidden)
        with pytest.raises(errors.PutRefused, match="of which nothing has run"):
            store.put("T", b"x")
        store.remove_put_hook(hidden)
        store.on_check("G", hidden)
        transaction = store.prepare("T", b"x", group="G")
        store.wait_dispatched()
        caplog.clear()
        store._checker.round(store, transaction.message.born_timestamp + 3_600_000)
        assert "of which nothing has run" in caplog.text and transaction.state == "pending"
