"""What was promised of the speed of flush back ends, line by line, and the cases that show it (bench/suite.py runs them).

All ratios are of one run, on one disk, medians of the repetitions; each peer at its matching durability. A line whose cases did
not run here is shown as not measured.
"""
from collections.abc import Callable, Sequence

from bench.targets import Figures, Target
from rmq_store.bench.case import Case

RECORD = 102                    # bytes of a record without its body: no properties, topic BenchTopic0
PAGE = 4096 - RECORD            # body of a record of 4 KiB
SMALL = {"seconds": 1.0, "cap_mib": 240, "segment_mib": 256}
WINDOWS = {"seconds": 1.5, "cap_mib": 600, "segment_mib": 256}
MANY = {**WINDOWS, "segment_mib": 640, "file_state": "prezeroed"}     # in one file, as fio's
ASYNC = {"seconds": 1.5, "pretouch_mib": 1500}
# The peers leave all of 1.4 GiB in the page cache; ours has a pool of that order. With the 32 MiB of a default store our rate
# is that of the device after 30 ms.
ROOMY = {"pool_window_count": 512}
SUSTAINED = {"seconds": 60.0, "cap_mib": 8 << 10, "body": PAGE}
DEPTH = 8                       # writes of 1 MiB under way, ours and fio's
URING = {"write_path": "pool", "flush_backend": "io_uring"}


def _sync(**more: object) -> Case:
    return Case("put_sync", **{**SMALL, "body": PAGE, **more})                       # type: ignore[arg-type]


def _kib(workload: str, **more: object) -> Case:
    """1 KiB; ours over the pool, as the profile `durable` has it."""
    own = {} if "subject" in more else {"write_path": "pool"}
    return Case(workload, **{**WINDOWS, "body": 1024, **own, **more})                # type: ignore[arg-type]


CASES: dict[str, Case] = {
    # one durable put of a 4 KiB record
    "page_mmap_fdatasync": _sync(file_state="prezeroed", flush_backend="fdatasync"),
    "page_mmap_msync": _sync(file_state="prezeroed", flush_backend="msync"),
    "page_pool_fdatasync": _sync(file_state="prezeroed", flush_backend="fdatasync", write_path="pool"),
    "page_uring": _sync(file_state="prezeroed", **URING),
    "page_fio": _sync(subject="fio", file_state="prezeroed", options={"block": 4096}),
    "page_fio_direct": _sync(subject="fio", file_state="prezeroed", options={"block": 4096, "direct": 1}),
    "page_default": _sync(),
    "page_sparse": _sync(file_state="sparse"),
    "page_fio_sparse": _sync(subject="fio", file_state="sparse", options={"block": 4096}),
    # many durable puts of 1 KiB
    "threads_64": _kib("put_sync_threads"),
    "threads_64_rocketmq": _kib("put_sync_threads", subject="rocketmq"),
    "window_64": _kib("put_async_window", window=64),
    "asyncio_64": _kib("put_asyncio", window=64),
    "window_64_rocketmq": _kib("put_async_window", window=64, subject="rocketmq"),
    "asyncio_512": _kib("put_asyncio", window=512),
    "window_512": _kib("put_async_window", window=512),
    "window_512_rocketmq": _kib("put_async_window", window=512, subject="rocketmq"),
    "one": _kib("put_sync", **SMALL),
    "one_sqlite": _kib("put_sync", **SMALL, subject="sqlite"),
    "one_lmdb": _kib("put_sync", **SMALL, subject="lmdb"),
    "one_rocksdb": _kib("put_sync", **SMALL, subject="rocksdb"),
    "many": Case("put_many", flush_mode="sync", write_path="pool", body=1024 - RECORD, batch=64, **MANY),
    "many_fio": Case("put_many", subject="fio", flush_mode="sync", batch=64, options={"block": 65536}, **MANY),
    # what most services do: now and then a put
    "paced": Case("put_async", body=100, rate=10_000, seconds=2.0),
    # asynchronous, one producer
    "async_100": Case("put_async", write_path="pool", body=100, **ASYNC),
    "async_100_chronicle": Case("put_async", subject="chronicle", body=100, **ASYNC),
    "async_1024": Case("put_async", write_path="pool", body=1024, options=ROOMY, **ASYNC),
    "async_1024_default": Case("put_async", write_path="pool", body=1024, **ASYNC),
    "async_1024_chronicle": Case("put_async", subject="chronicle", body=1024, **ASYNC),
    "async_1024_lmdb": Case("put_async", subject="lmdb", body=1024, **ASYNC),
    "async_1024_rocksdb": Case("put_async", subject="rocksdb", body=1024, **ASYNC),
    "async_1024_sqlite": Case("put_async", subject="sqlite", body=1024, **ASYNC),
    # more than the page cache takes
    "sustained": Case("put_sustained", **SUSTAINED, **URING),
    "sustained_fio": Case("put_sustained", subject="fio", file_state="fallocated", options={"direct": 1, "depth": DEPTH},
                          **SUSTAINED),
    "sustained_rocketmq": Case("put_sustained", subject="rocketmq", **SUSTAINED),
}
# Run in an open loop, where max_us counts from when a put was due, at a rate that the suite takes from "sustained": just below
# what the device can do.
AT_RATE, RATE_SHARE = "sustained_at_rate", 0.9

PAGES = ("page_mmap_fdatasync", "page_mmap_msync", "page_pool_fdatasync", "page_uring")


def _best(f: Figures, cases: Sequence[str], key: str, choose: Callable[..., float] = min) -> float:
    found = [f[c][key] for c in cases if c in f]
    if not found:
        raise KeyError(cases[0])
    return choose(found)


def _ratio(text: str, limit: float, ours: Callable[[Figures], float], peer: Callable[[Figures], float],
           at_least: bool = True) -> Target:
    return Target(text, "x", limit, lambda f, _: ours(f) / peer(f), at_least, lambda f, _: (ours(f), peer(f)))


def _figure(case: str, key: str) -> Callable[[Figures], float]:
    return lambda f: f[case][key]


def _pair(text: str, limit: float, ours: str, peer: str, key: str, at_least: bool = True, peer_key: str = "") -> Target:
    return _ratio(text, limit, _figure(ours, key), _figure(peer, peer_key or key), at_least)


def _chronicle(size: int, rate: float) -> list[Target]:
    ours, theirs = f"async_{size}", f"async_{size}_chronicle"
    text = f"asynchronous, one producer, {size} B{'' if size < 1024 else ', a pool of 2 GiB'}"
    return [_pair(f"{text}: rate beside Chronicle Queue", rate, ours, theirs, "msgs_per_s"),
            _pair(f"{text}: p99.9 beside Chronicle Queue", 1.0, ours, theirs, "p999_us", at_least=False),
            _pair(f"{text}: worst pause beside Chronicle Queue", 0.25, ours, theirs, "max_us", at_least=False)]


def _core_pct(f: Figures) -> float:
    """The threads that commit, flush and drive the ring, together, in per cent of one core."""
    run = f["sustained"]
    return 100 * sum(run.get(f"cpu_{name}_secs", 0) for name in ("commit", "flush", "ring")) / run["flushed_secs"]


def _most_memory(f: Figures) -> float:
    found = [v["peak_beyond_pool_mib"] for v in f.values() if "peak_beyond_pool_mib" in v and "pool_mib" in v]
    if not found:
        raise KeyError("peak_beyond_pool_mib")
    return max(found)


GOALS = (
    _ratio("synchronous, 4 KiB: best back end beside fio write+fdatasync, p50", 1.10,
           lambda f: _best(f, PAGES, "p50_us"), _figure("page_fio", "p50_us"), at_least=False),
    _pair("synchronous, 4 KiB: direct path beside fio O_DIRECT|O_DSYNC, p50", 1.10, "page_uring", "page_fio_direct", "p50_us",
          at_least=False),
    _pair("synchronous, 4 KiB, sparse file: beside fio on a sparse file, p50", 1.10, "page_sparse", "page_fio_sparse", "p50_us",
          at_least=False),
    _pair("synchronous, 4 KiB: pre-zeroed default beside a sparse file, puts a second", 1.4, "page_default", "page_sparse",
          "msgs_per_s"),
    _pair("synchronous, 1 KiB: 64 threads beside the real RocketMQ", 1.5, "threads_64", "threads_64_rocketmq", "msgs_per_s"),
    _pair("synchronous, 1 KiB: put_async, 64 in flight, beside the real RocketMQ", 2, "window_64", "window_64_rocketmq",
          "msgs_per_s"),
    _pair("synchronous, 1 KiB: asyncio, 64 in flight, beside the real RocketMQ", 2, "asyncio_64", "window_64_rocketmq",
          "msgs_per_s"),
    _pair("synchronous, 1 KiB: put_async, 512 in flight, beside the real RocketMQ", 4, "window_512", "window_512_rocketmq",
          "msgs_per_s"),
    _pair("synchronous, 1 KiB: asyncio, 512 in flight, beside the real RocketMQ", 4, "asyncio_512", "window_512_rocketmq",
          "msgs_per_s"),
    _pair("synchronous, 1 KiB: 64 in flight beside SQLite", 10, "window_64", "one_sqlite", "msgs_per_s"),
    _pair("synchronous, 1 KiB: 64 in flight beside LMDB", 10, "window_64", "one_lmdb", "msgs_per_s"),
    _pair("synchronous, 1 KiB: one producer's p50 beside SQLite's", 0.8, "one", "one_sqlite", "p50_us", at_least=False),
    _pair("put_many, 64 KiB a write: bandwidth beside fio's", 0.8, "many", "many_fio", "mib_per_s"),
    _pair("sustained, 4 KiB, 8 GiB: O_DIRECT io_uring beside fio O_DIRECT", 0.9, "sustained", "sustained_fio",
          "flushed_mib_per_s", peer_key="mib_per_s"),
    Target("sustained: commit and flush together, of one core", "%", 25, lambda f, _: _core_pct(f), at_least=False),
    Target("sustained, at 90 % of the device's rate, a pool of 2 GiB: p99.9 of put", "us", 20,
           lambda f, _: f[AT_RATE]["service_p999_us"], at_least=False),
    _ratio("sustained: worst pause of the real RocketMQ, its pool of 3 GiB, its own rate, beside ours at that rate", 10,
           _figure("sustained_rocketmq", "max_us"), _figure(AT_RATE, "max_us")),
    *_chronicle(100, 1.5),
    *_chronicle(1024, 5),
    _ratio("asynchronous, 1 KiB, a pool of 2 GiB: beside the best of LMDB, RocksDB and SQLite without sync", 8,
           _figure("async_1024", "msgs_per_s"),
           lambda f: _best(f, [f"async_1024_{p}" for p in ("lmdb", "rocksdb", "sqlite")], "msgs_per_s", max)),
    Target("10,000 puts a second, asynchronous, 100 B: median of the call", "us", 1, lambda f, _: f["paced"]["service_p50_us"],
           at_least=False),
    Target("memory beyond the pool, the most of all runs", "MiB", 64, lambda f, _: _most_memory(f), at_least=False),
    Target("dirty page cache with the direct back end, sustained", "MiB", 64, lambda f, _: f["sustained"]["peak_dirty_mib"],
           at_least=False),
)
