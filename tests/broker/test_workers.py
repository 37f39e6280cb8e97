"""Threads that run what may wait."""
import threading

from rmq_store.broker.workers import THREADS_MAX, Workers
from tests.soon import until


def test_a_job_does_not_wait_for_a_thread_that_has_just_taken_another(monkeypatch):
    """The thread is no idle one from the moment at which the job leaves the queue, which is before it runs."""
    workers, taken, begin, done = Workers(), threading.Event(), threading.Event(), threading.Event()
    get = workers._jobs.get

    def slowly():
        found = get()
        taken.set()
        begin.wait(30)
        return found

    monkeypatch.setattr(workers._jobs, "get", slowly)
    assert workers.submit(lambda: done.wait(30))
    assert taken.wait(30)
    assert workers.submit(done.set)
    begin.set()
    assert done.wait(10)
    workers.stop()
    assert workers.waiting == 0


def test_as_many_threads_as_jobs_and_no_more():
    workers, go = Workers(), threading.Event()
    running = []
    for n in range(THREADS_MAX + 3):
        assert workers.submit(lambda n=n: (running.append(n), go.wait(30)))
    until(lambda: len(running) == THREADS_MAX)
    assert len(workers._threads) == THREADS_MAX
    go.set()
    workers.stop()
    assert sorted(running) == list(range(THREADS_MAX + 3))
