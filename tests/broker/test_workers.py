"""Threads that run what may wait, in turns by connection."""
import threading

from rmq_store.broker import workers as room
from rmq_store.broker.workers import RUNNING_OF_ONE, THREADS_MAX, WAITING_OF_ONE, Workers
from tests.soon import until


def test_a_job_does_not_wait_for_a_thread_that_has_just_taken_another(monkeypatch):
    """The thread is no idle one from the moment at which the job leaves the queue, which is before it runs."""
    workers, taken, begin, done = Workers(), threading.Event(), threading.Event(), threading.Event()
    following = workers._next

    def slowly():
        found = following()
        taken.set()
        begin.wait(30)
        return found

    monkeypatch.setattr(workers, "_next", slowly)
    assert workers.submit(lambda: done.wait(30))
    assert taken.wait(30)
    assert workers.submit(done.set)
    begin.set()
    assert done.wait(10)
    workers.stop()
    assert workers.waiting == 0


def test_as_many_threads_as_jobs_and_no_more():
    workers, go = Workers(), threading.Event()
    running, ended = [], []
    for n in range(THREADS_MAX + 3):
        assert workers.submit(lambda n=n: (running.append(n), go.wait(30), ended.append(n)), owner=n)
    until(lambda: len(running) == THREADS_MAX)
    assert len(workers._threads) == THREADS_MAX
    go.set()
    until(lambda: len(ended) == THREADS_MAX + 3)
    workers.stop()
    assert sorted(running) == list(range(THREADS_MAX + 3)) and not workers._lanes


def flooded(go):
    """Workers with more jobs of connection 1 than it may have, which wait for `go`."""
    workers, ran = Workers(), []
    taken = sum(workers.submit(lambda n=n: (ran.append(n), go.wait(30)), owner=1) for n in range(3 * WAITING_OF_ONE))
    until(lambda: len(ran) == RUNNING_OF_ONE)
    assert WAITING_OF_ONE <= taken <= WAITING_OF_ONE + RUNNING_OF_ONE
    return workers, ran


def test_one_connection_has_a_share_of_the_threads_and_the_places():
    go, done = threading.Event(), threading.Event()
    workers, ran = flooded(go)
    assert workers.submit(done.set, owner=2)            # there is room for another,
    assert done.wait(10) and len(ran) == RUNNING_OF_ONE         # and a thread
    workers.drop(1)
    go.set()
    workers.stop()


def test_connections_take_turns(monkeypatch):
    monkeypatch.setattr(room, "THREADS_MAX", 1)
    workers, go, order = Workers(), threading.Event(), []
    assert workers.submit(lambda: go.wait(30), owner=0)
    for n in range(50):
        assert workers.submit(lambda n=n: order.append((1, n)), owner=1)
    for owner in (2, 3):
        assert workers.submit(lambda owner=owner: order.append((owner, 0)), owner=owner)
    go.set()
    until(lambda: len(order) == 52)
    assert set(order[:3]) == {(1, 0), (2, 0), (3, 0)}
    assert [n for owner, n in order if owner == 1] == list(range(50))
    workers.stop()


def test_what_a_gone_connection_asked_is_dropped_but_not_what_it_stores():
    go, stored, other = threading.Event(), threading.Event(), threading.Event()
    workers, ran = flooded(go)
    workers.drop(1)
    assert workers.waiting == 0
    assert workers.submit(lambda: None, owner=1) and workers.submit(stored.set, owner=1, stays=True)
    workers.drop(1)
    assert workers.waiting == 1
    assert workers.submit(other.set, owner=2)
    go.set()
    assert stored.wait(10) and other.wait(10) and len(ran) == RUNNING_OF_ONE
    workers.stop()
    assert workers._bytes == 0 and not workers._lanes


def test_bytes_have_a_bound_for_one_and_for_all():
    go, workers = threading.Event(), Workers()
    for owner in range(4):
        taken = sum(workers.submit(lambda: go.wait(30), 16 << 20, owner) for _ in range(20))
        assert taken <= RUNNING_OF_ONE + 4
    assert workers._bytes <= room.BYTES_MAX
    for owner in range(4):
        workers.drop(owner)
    go.set()
    workers.stop()


def test_stop_drops_what_waits_and_leaves_what_does_not_end(monkeypatch):
    monkeypatch.setattr(room, "STOP_S", 0.0)
    go = threading.Event()
    workers, ran = flooded(go)
    workers.stop()
    assert workers.waiting == 0 and not workers.submit(lambda: None)
    go.set()
    for thread in workers._threads:
        thread.join(30)
    assert len(ran) == RUNNING_OF_ONE
