"""The thread that publishes a store's figures (statistics/live.py), where stats_file_interval_ms asks for it.

A thread of its own: the control thread is busy for seconds while old files are deleted, and figures are wanted then, too. It
takes the GIL as stats() and lag() do, longer with thousands of queues and groups; no put waits for anything else of it. What
fails is said in the log once, and tried again.
"""
import threading
import weakref

from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import StoreStateError
from rmq_store.events import Event, emit
from rmq_store.opened.serving import StoreServes
from rmq_store.services.statistics.live import LiveFile

__all__ = ["Publisher"]


class Publisher:
    """Starts with the store; holds it weakly, so that a forgotten store can be collected."""

    def __init__(self, store: StoreServes, files: ControlFiles) -> None:
        interval_ms = store.options.stats_file_interval_ms
        self._store = weakref.ref(store)
        self._path, self._interval_s = store.path, interval_ms / 1000
        self._file = LiveFile(files, store.path, interval_ms)
        self._stop = threading.Event()
        self._failed = ""
        self.thread = start_thread(self._run, "rmq-stats")

    def stop(self) -> None:
        """Writes nothing more."""
        self._stop.set()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def remove(self) -> None:
        """The file goes, as the store does. Where it cannot, its age tells that it is old: said, and no reason to recover."""
        try:
            self._file.remove()
        except OSError as error:
            emit(Event.TASK_FAILED, task="removing live figures", path=self._path, error=str(error))

    def _run(self) -> None:
        while self._write() and not self._stop.wait(self._interval_s):
            pass

    def _write(self) -> bool:
        store = self._store()
        if store is None:
            return False
        try:
            self._file.write(store.stats(), store.histograms(), store._rates, store.lag(),
                             sum(level.waiting for level in store.delay_levels()), store.stats_items(),
                             {**store.replication()._asdict(), "replicas": [one._asdict() for one in store.replicas()]})
            self._failed = ""
        except StoreStateError:
            return False            # it closes
        except Exception as error:  # of whatever kind: figures are worth no thread, and no store
            if self._failed != str(error):
                self._failed = str(error)
                emit(Event.TASK_FAILED, task="writing live figures", path=self._path, error=self._failed)
        return True
