"""The workloads that read: pulls, queries by key, the walk over the raw log, and opening (recovery).

All of them on a log of `cap_mib`, written before and in the page cache: they measure the store, not the disk.
"""
import operator
import os
import random
import shutil
import statistics
import time
from pathlib import Path

from rmq_store.access.core import _building
from rmq_store.access.reader._message import Message
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import messages
from rmq_store.bench.case import Case
from rmq_store.bench.children import in_child, killed
from rmq_store.bench.messages import POOL, QUEUES, TOPIC
from rmq_store.bench.ours import Figures, histograms, opened, options_of
from rmq_store.store import MessageStore

PULL = 32
GIB = 1 << 30
RECOVERIES = ("dirty", "dirty_no_checkpoint", "clean", "clean_queues_lost", "dirty_queues_lost")


def _all_fields(message: Message) -> tuple[object, ...]:
    return (message.topic, message.queue_id, message.queue_offset, message.offset, message.tags, message.keys,
            message.properties, message.born_timestamp, message.store_timestamp, message.born_host, message.store_host,
            message.flag, message.sys_flag, message.reconsume_times, message.msg_id)


def _fill(store: MessageStore, case: Case, count: int = 0) -> None:
    size = messages.record_size(store, case.props, case.body)
    messages.write(store, case.props, case.body, count or max(1000, (case.cap_mib << 20) // size))
    messages.drain(store)


def _pull(store: MessageStore, look: str, seconds: float) -> tuple[Figures, Histogram]:
    """Pulls of PULL through every queue from its beginning, again and again; what each message is asked is `look`."""
    clock, get, times, count = time.perf_counter_ns, store.get, Histogram(), 0
    body = operator.attrgetter("body")
    start, own = clock(), time.process_time_ns()
    while clock() - start < seconds * 1e9:
        for queue in range(QUEUES):
            offset, end = 0, store.max_offset(TOPIC, queue)
            while offset < end:
                before = clock()
                result = get(TOPIC, queue, offset, PULL)
                if look == "decoded":
                    for message in result:
                        bytes(message.body)
                        _all_fields(message)
                        count += 1
                elif look == "bodies":
                    for message in result:
                        body(message)
                        count += 1
                else:
                    for _ in result:
                        count += 1
                times.add(clock() - before)
                offset = result.next_offset
    took, own = clock() - start, time.process_time_ns() - own
    return {"msgs_per_s": round(count * 1e9 / took), "cpu_ns_per_msg": round(own / count, 1),
            "ns_per_msg": round(times.quantile(.5) / PULL, 1), **{"pull_" + k: v for k, v in times.figures().items()}}, times


def get(case: Case, base: Path) -> Figures:
    """get: msgs_per_s, ns_per_msg and the quantiles of a pull are those of views; bodies and decoded beside them."""
    with opened(base / "store", case) as store:
        _fill(store, case)
        looks: Figures = {}
        times: dict[str, Histogram] = {}
        for look in ("views", "bodies", "decoded"):
            _pull(store, look, min(0.2, case.seconds))
            looks[look], times[look] = _pull(store, look, case.seconds)
    return {**looks["views"], **times["views"].figures(), **looks, "histograms": histograms(**times)}


def _query(store: MessageStore, keys: list[str], seconds: float) -> tuple[Figures, Histogram]:
    """One key at a time, in random order."""
    clock, query, times, hits = time.perf_counter_ns, store.query_key, Histogram(), 0
    rng = random.Random(7)
    start, own = clock(), time.process_time_ns()
    while clock() - start < seconds * 1e9:
        key = keys[rng.randrange(len(keys))]
        before = clock()
        result = query(TOPIC, key)
        times.add(clock() - before)
        hits += len(list(result))
    took, own = clock() - start, time.process_time_ns() - own
    return {**times.figures(), "msgs_per_s": round(times.count * 1e9 / took), "cpu_ns_per_msg": round(own / times.count, 1),
            "hits_per_query": round(hits / times.count, 2)}, times


def query_key(case: Case, base: Path) -> Figures:
    """query_key: on so few messages that every key has one hit; the same by unique key under query_uniq_key."""
    with opened(base / "store", case) as store:
        count = min(60_000, POOL, (case.cap_mib << 20) // (case.body + 300))
        _fill(store, case, count)
        figures, times = _query(store, [messages.key(i) for i in range(count)], case.seconds)
        unique, unique_times = _query(store, [messages.unique_id(i) for i in range(count)], case.seconds)
    return {**figures, "query_uniq_key": unique, "histograms": histograms(key=times, unique_key=unique_times)}


def _scan(path: Path, check_crc: bool) -> tuple[float, int, int]:
    """Seconds, bytes and records of one walk over all files, by the function that recovery uses."""
    with MessageStore.open(path, readonly=True) as store:
        log = _building.log_recovery(store)
        start, size, records = time.perf_counter(), 0, 0
        for file in log.starts():
            found = log.scan(file, limit=1 << 62, check_crc=check_crc, crc_property=False)
            size += found.end - file
            records += found.records
        return time.perf_counter() - start, size, records


def scan(case: Case, base: Path) -> Figures:
    """scan: GiB/s, plain and with every body's checksum; each the median of five walks."""
    path = base / "store"
    with opened(path, case) as store:
        _fill(store, case)
    figures: Figures = {}
    for name, check in (("plain", False), ("crc", True)):
        _scan(path, check)      # maps and touches every page once
        runs = [_scan(path, check) for _ in range(5)]
        seconds, (_, size, records) = statistics.median(r[0] for r in runs), runs[0]
        figures |= {name + "_gib_per_s": round(size / GIB / seconds, 2),
                    name + "_ms_per_gib": round(seconds * 1e3 * GIB / size, 1), "bytes": size, "records": records,
                    "msgs_per_s": round(records / seconds)}
    return figures


def _prepare(path: Path, kind: str) -> None:
    """What there is to open. "dirty" is what the kill left; the others are made of a store that was closed since."""
    if kind != "dirty":
        if not kind.startswith("clean"):
            (path / "abort").touch()
        if kind != "clean":
            (path / "checkpoint").unlink(missing_ok=True)
        if kind.endswith("queues_lost"):
            shutil.rmtree(path / "consumequeue")
            shutil.rmtree(path / "index", ignore_errors=True)
    os.sync()


def _open(path: Path, case: Case) -> Figures:
    start = time.perf_counter()
    store = MessageStore.open(path, **options_of(case))
    open_ms = (time.perf_counter() - start) * 1e3
    store.wait_dispatched()
    ready_ms = (time.perf_counter() - start) * 1e3
    store.close()
    return {"open_ms": open_ms, "ready_ms": ready_ms}


def _rewrite_ms(path: Path, size: int) -> float:
    """What writing and syncing so many bytes costs on this disk without a store: recovery does that with a log of which no
    checkpoint says that it is flushed."""
    block = bytes(1 << 20)
    with open(path, "wb") as f:
        for _ in range(2):       # the second time over written blocks, as recovery does
            f.seek(0)
            start = time.perf_counter()
            f.writelines(block for _ in range(size >> 20))
            f.flush()
            os.fdatasync(f.fileno())
    path.unlink()
    return (time.perf_counter() - start) * 1e3


def _write_all(path: Path, case: Case) -> None:
    _fill(opened(path, case), case)


def recover(case: Case, base: Path) -> Figures:
    """recover: a child writes the log and is killed once all is dispatched and flushed; each open is a process of its own.

    "dirty" is the open after that kill: the checkpoint is there, and says how far the log and its queues are on the device.
    "dirty_no_checkpoint" begins with the first file, as in the Java harness, and writes all of the log again; rewrite_ms is
    what the disk alone needs for so many bytes."""
    path = base / "store"
    killed(_write_all, path, case)
    figures: Figures = {}
    for kind in RECOVERIES:
        _prepare(path, kind)
        figures |= {f"{kind}_{k}": round(v, 1) for k, v in in_child(_open, path, case).items()}
    with MessageStore.open(path, readonly=True) as store:
        size = store.max_log_offset - store.min_log_offset
    for kind in ("dirty", "dirty_no_checkpoint"):       # all of it: until the log is scanned and its queues are complete
        figures[f"{kind}_s_per_gib"] = round(figures[f"{kind}_ready_ms"] / 1e3 * GIB / size, 3)
    return {**figures, "log_bytes": size, "rewrite_ms": round(_rewrite_ms(base / "rewrite", size), 1)}


def run(case: Case, base: Path) -> Figures:
    """Any workload of this module."""
    return {"get": get, "query_key": query_key, "scan": scan, "recover": recover}[case.workload](case, base)
