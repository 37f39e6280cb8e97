"""Whatever a process runs out of, and whichever call meets it: it is done, or a typed error says what is wanted; and when the
want is over, everything works and nothing acknowledged is missing."""
import errno
import threading

import pytest

from rmq_store import MessageStore
from tests.soon import until
from tests.wants.calls import CALLS, OTHERS
from tests.wants.world import WANTS, World, bounded


def test_every_public_call_has_a_row():
    public = {name for name in dir(MessageStore) if not name.startswith("_")}
    assert public == {name.split(",")[0] for name in CALLS} | OTHERS


def test_every_call_succeeds_without_a_want(tmp_path):
    """Else the matrix would call what is refused for another reason."""
    world = World(tmp_path)
    try:
        world.put()
        raised = {name: bounded(lambda call=call: call(world), name) for name, call in CALLS.items()}
        assert {name: error for name, error in raised.items() if error is not None} == {}
        assert (world.heals("all"), world.end()) == (None, None)
    finally:
        world.close()


@pytest.mark.parametrize("nth", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 5, 8, 13))])
@pytest.mark.parametrize("want", WANTS)
def test_every_call_under_a_want(tmp_path, want, nth):
    world = World(tmp_path)
    try:
        world.put()
        wrong = []
        for name, call in CALLS.items():
            wrong += filter(None, [world.under(want, call, name, nth), world.heals(f"{name} under {want} ({nth})")])
            assert len(wrong) < 5, wrong
        assert not wrong, wrong
        assert world.end() is None
    finally:
        world.probe.clear()
        world.close()


@pytest.mark.parametrize("nth", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("want", WANTS)
def test_a_slave_under_a_want(tmp_path, want, nth):
    """It may stand still as long as that lasts; then it continues by itself, and its master was not held up."""
    world = World(tmp_path)
    try:
        world.put()
        world.slave_probe.fail(WANTS[want][0], nth, WANTS[want][1], sticky=True)
        for name in ("put, a large one", "put, a new topic", "put, a timer", "put"):
            error = bounded(lambda name=name: CALLS[name](world), name)
            assert error is None, f"{name}: {error!r}"
        until(lambda: world.slave_probe.hits > 0, 20_000)
        assert bounded(lambda: (world.slave.stats(), world.slave.get("T", 0, 0)), "reading the slave") is None
        world.slave_probe.clear()
        assert (world.heals(f"a slave's {want}"), world.end()) == (None, None)
    finally:
        world.slave_probe.clear()
        world.close()


@pytest.fixture
def no_threads(monkeypatch):
    """no_threads(True): Python gets no thread any more, but for those of the test."""
    start = threading._start_new_thread

    def refuse(run, arguments, *more):
        if getattr(run, "__self__", threading.current_thread()).name.startswith("test "):
            return start(run, arguments, *more)
        raise RuntimeError("can't start new thread")
    return lambda on: monkeypatch.setattr(threading, "_start_new_thread", refuse if on else start)


def test_every_call_without_a_thread_to_be_had(tmp_path, no_threads):
    world = World(tmp_path)
    try:
        world.put()
        for name, call in CALLS.items():
            no_threads(True)
            error = bounded(lambda call=call: call(world), f"test {name}")
            no_threads(False)
            assert error is None or getattr(error, "errno", None) == errno.EAGAIN, f"{name}: {error!r}"
            assert (wrong := world.heals(name)) is None, wrong
        assert world.end() is None
    finally:
        no_threads(False)
        world.close()
