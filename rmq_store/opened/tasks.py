"""What the control thread (watch.py) does for an open store when its time comes, and what the rooms are given of the store.

Each task is called with the store, so that none of them holds it.
"""
import threading
import weakref
from collections.abc import Callable

from rmq_store.config.load import Options
from rmq_store.errors import StoreClosed
from rmq_store.events import Event, emit
from rmq_store.filter._bitmap import FilterTable
from rmq_store.log.recovery.places import Places
from rmq_store.opened.serving import StoreServes
from rmq_store.opened.watch import Task
from rmq_store.replication.service import NOTES_MS
from rmq_store.services.cleaning._clean import release_idle
from rmq_store.services.integrity.rows import live_log_findings
from rmq_store.services.statistics.windows import SAMPLE_MS

__all__ = ["batch_taker", "filter_setter", "known_offsets", "log_flusher", "policy_taker", "release_task", "save_values",
           "tasks_of"]

CHECK_MS = 600_000          # as RocketMQ


def tasks_of(store: StoreServes, services: bool) -> list[Task]:
    """By the store's options: (name, period in ms, function). services: also those that deliver and delete."""
    options = store.options
    tasks: list[Task] = [("writing consumer offsets", options.offsets_flush_interval_ms, _flush_offsets),
                         ("counting rates", 1000, _take_rates), ("reading counters", SAMPLE_MS, _read_counters),
                         ("looking for the files of the log", CHECK_MS, _check_log)]
    tasks.append(("finishing deletions", 500, _finish_deletions))
    tasks += release_task(options)
    tasks.append(("tending replication", NOTES_MS, _tend_replication))
    delivers = services and options.role != "slave"     # a slave stores what its master delivers
    if delivers and options.delay == "deliver":
        tasks.append(("writing delay offsets", options.delay_offset_flush_interval_ms, _write_delay_offsets))
    if delivers and options.timer_wheel_enable:
        tasks.append(("writing timer wheel and log", options.timer_flush_interval_ms, _write_timers))
    if delivers:
        tasks.append(("writing op messages", options.transaction_op_interval_ms, _tend_transactions))
    tasks.append(("cleaning", options.clean_interval_ms, _clean) if services
                 else ("looking how full the disk is", options.clean_interval_ms, _look))
    return tasks


def release_task(options: Options) -> list[Task]:
    """Also of a store that follows another process: it has maps of its own."""
    if not options.map_release_enabled:
        return []
    return [("giving back the memory of idle files", options.map_release_interval_ms, _release_idle)]


def _release_idle(store: StoreServes, stop: threading.Event) -> None:
    release_idle(store, store.options.map_release_reserve_files)


def _finish_deletions(store: StoreServes, stop: threading.Event) -> None:
    store._finish_deletions()


def _tend_replication(store: StoreServes, stop: threading.Event) -> None:
    if store._replication is not None:
        store._replication.tend()


def _flush_offsets(store: StoreServes, stop: threading.Event) -> None:
    store._consuming.flush()
    store._dispatchers.write()
    if store._entering is not None:
        store._entering.enter(store)


def _take_rates(store: StoreServes, stop: threading.Event) -> None:
    store._rates.take(store)


def _read_counters(store: StoreServes, stop: threading.Event) -> None:
    store._windows.take(store, store._consuming.counts())


def _check_log(store: StoreServes, stop: threading.Event) -> None:
    for finding in live_log_findings(store, Places(store.path, store.options)):
        emit(Event.FILES_ODD, path=finding.path, kind=finding.kind, detail=finding.detail)


def _write_delay_offsets(store: StoreServes, stop: threading.Event) -> None:
    if store._delay is not None:
        store._delay.write()


def _write_timers(store: StoreServes, stop: threading.Event) -> None:
    if store._timer is not None:
        store._timer.write()


def _tend_transactions(store: StoreServes, stop: threading.Event) -> None:
    store._transactions.tend(store)


def _clean(store: StoreServes, stop: threading.Event) -> None:
    store._cleaner.tick(store, stop)


def _look(store: StoreServes, stop: threading.Event) -> None:
    store._cleaner.tick(store, stop, services=False)


def known_offsets(store: StoreServes) -> dict[tuple[str, str], dict[int, int]]:
    """For the cleaner: who has consumed how far, and loses messages. Those of compaction topics outlive the log."""
    compacted = store._compacted_topics()
    return {key: queues for key, queues in store.offsets.table().items() if key[0] not in compacted}


def policy_taker(store: StoreServes) -> Callable[[frozenset[str]], None]:
    """Makes the cleanup policies of topic_table hold. Holds the store weakly."""
    weak = weakref.ref(store)

    def take(compacted: frozenset[str]) -> None:
        found = weak()
        if found is not None:
            found._take_policies(compacted)

    return take


def batch_taker(store: StoreServes) -> Callable[[str, str], None]:
    """Makes the queue types of topic_table hold. Holds the store weakly."""
    weak = weakref.ref(store)

    def take(topic: str, step: str) -> None:
        found = weak()
        if found is not None:
            found._batch_topic(topic, step)

    return take


def filter_setter(store: StoreServes) -> Callable[[FilterTable | None], tuple[int, int]]:
    """Hands dispatch a table of filters. Holds the store weakly; raises StoreClosed once that is gone."""
    weak, path = weakref.ref(store), store.path

    def set_table(table: FilterTable | None) -> tuple[int, int]:
        found = weak()
        if found is None:
            raise StoreClosed(path)
        return found._set_filters(table)

    return set_table


def save_values(store: StoreServes) -> None:
    """For the cleaner, before it deletes a file: the compaction logs have what is in it, and topics.json says that they count.
    Raises OSError, CorruptionError, StoreStateError."""
    store._compactions.mark_unfed()
    if store._compactions.topics:
        store._consuming.flush()
        store._compactions.feed(store)


def log_flusher(store: StoreServes) -> Callable[[], object]:
    """Makes what was put durable, and raises StoreClosed once the store closes: what is written then, close() writes, when it
    has flushed the log. Holds the store weakly."""
    weak, path = weakref.ref(store), store.path

    def flush() -> None:
        found = weak()
        if found is None:
            raise StoreClosed(path)
        found.flush()

    return flush
