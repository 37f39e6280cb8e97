"""The cases that stores are compared with, in groups: bench/pairs.py runs a group, and its --list names them all.

A case is a name and, for each subject that runs it, the Case that does the same work there. CASES[group][case][subject].
RocketMQ has a pool of 2 GiB wherever it puts asynchronously: more than a run writes, as with its default of 5 GiB. Where the
device takes less meanwhile (put_1024, many_100), this library has a pool of that size too: the same memory for both.
settle_s is the rest before each stretch that follows another, or the warm-up of the Java side.

A run writes LOG_MIB at most. In a virtual machine whose host lends memory page by page, the first use of a page can cost 50 µs;
RocketMQ pays it for each page of the page cache, this library only for its queues. PRETOUCH_MIB are used and given back before
each stretch so that neither pays, and a host that takes free memory back has done so after some hundred MiB.
"""
from dataclasses import replace

from bench import goals
from rmq_store.bench.case import OURS, Case
from rmq_store.bench.runner import SETTLE_S

Sides = dict[str, Case]
Group = dict[str, Sides]

LOG_MIB = 600
PRETOUCH_MIB = 900
PUT = {"seconds": 2.5, "cap_mib": LOG_MIB, "pretouch_mib": PRETOUCH_MIB, "settle_s": SETTLE_S}
POOL = {"pool_window_count": 512}       # of this library: 2 GiB
POOL_OF_ROCKETMQ = {"pool": 2}          # GiB
# Made disks, and what runs on each of them.
DISKS = ("ext4", "xfs", "btrfs", "tmpfs", "throttled")
ON_A_MADE_DISK = {"seconds": 1.0, "cap_mib": 160, "segment_mib": 64}
SMALL_INDEX = {"index_slots": 100_000, "index_entries_max": 400_000}
QUICK = {"seconds": 0.1, "cap_mib": 16, "segment_mib": 64, "pretouch_mib": 0, "settle_s": 0.0}
QUICK_RATE = 2000


def _rested(case: Case) -> Case:
    return replace(case, settle_s=SETTLE_S) if case.subject in ("rocketmq", "chronicle") else case


def same(case: Case, *subjects: str, ours: dict[str, object] | None = None, theirs: dict[str, object] | None = None) -> Sides:
    """One case for this library and for each of `subjects`, with the options of each side."""
    return {OURS: replace(case, options={**case.options, **(ours or {})}),
            **{s: _rested(replace(case, subject=s, options=theirs or {})) for s in subjects}}


def _put(workload: str, body: int, **more: object) -> Case:
    return Case(workload, write_path="pool", body=body, **{**PUT, **more})                   # type: ignore[arg-type]


BESIDE: Group = {
    "put_100": same(_put("put_async", 100), "rocketmq", theirs=POOL_OF_ROCKETMQ),
    "put_1024": same(_put("put_async", 1024), "rocketmq", ours=POOL, theirs=POOL_OF_ROCKETMQ),
    "put_100_4": same(_put("put_threads", 100), "rocketmq", theirs=POOL_OF_ROCKETMQ),
    "many_100": same(_put("put_many", 100), "rocketmq", ours=POOL, theirs={"mode": "async"}),
    "sync_64": same(Case("put_sync_threads", write_path="pool"), "rocketmq"),
    "window_512": same(Case("put_async_window", write_path="pool"), "rocketmq"),
    "read": same(Case("get", seconds=1.5, cap_mib=460), "rocketmq"),
}
# Both at RATE_SHARE of the slower one's sustained rate, which the group measures first. A log of so many seconds at that rate
# is more than the closed loop's.
AT_RATE: Group = {name: {s: replace(c, seconds=3.0, cap_mib=4 << 10) for s, c in BESIDE[name].items()}
                  for name in ("put_100", "put_1024", "put_100_4", "sync_64")}
RATE_SHARE = 0.9
FOUND_BY = {"seconds": 2.5, "cap_mib": LOG_MIB}

ROOMY = goals.ROOMY
ASYNC = {**goals.ASYNC, "settle_s": SETTLE_S}
CHRONICLE: Group = {
    "async_100": same(Case("put_async", write_path="pool", body=100, **ASYNC), "chronicle"),            # type: ignore[arg-type]
    "async_1024": same(Case("put_async", write_path="pool", body=1024, **ASYNC), "chronicle",           # type: ignore[arg-type]
                       ours=ROOMY),
}
BASES = ("sqlite", "lmdb", "rocksdb")
DATABASES: Group = {
    "one_sync_1024": same(Case("put_sync", write_path="pool", **goals.SMALL), *BASES),                  # type: ignore[arg-type]
    "many_100": same(Case("put_many", write_path="pool", body=100, cap_mib=700), *BASES, ours=ROOMY),
    "async_1024": same(Case("put_async", write_path="pool", cap_mib=700), *BASES, ours=ROOMY),
}


def _of_goals(*keys: str) -> Group:
    return {key: {goals.CASES[key].subject: goals.CASES[key]} for key in keys}


def _with(ours: str, *peers: str) -> Sides:
    return {goals.CASES[key].subject: _rested(goals.CASES[key]) for key in (ours, *peers)}


PAGES: Group = {
    **_of_goals("page_mmap_fdatasync", "page_mmap_msync", "page_pool_fdatasync", "page_uring", "page_default", "page_fio",
                "page_fio_direct"),
    "page_sparse": _with("page_sparse", "page_fio_sparse"),
}
SHARED: Group = {
    "threads_64": _with("threads_64", "threads_64_rocketmq"), "window_64": _with("window_64", "window_64_rocketmq"),
    "window_512": _with("window_512", "window_512_rocketmq"), "many": _with("many", "many_fio"),
    **_of_goals("asyncio_64", "asyncio_512"),
}
STREAM: Group = {"sustained": _with("sustained", "sustained_fio", "sustained_rocketmq")}
ALONE: Group = {name: {OURS: case} for name, case in {
    "put_100_tagged": replace(BESIDE["put_100"][OURS], props="tagged"),
    "put_1024_default": _put("put_async", 1024),
    "paced": goals.CASES["paced"],
    "query": Case("query_key", seconds=1.5),
    "scan": Case("scan", cap_mib=1000),
    "recover": Case("recover", cap_mib=1000),
    "mixed": Case("mixed", seconds=2, rate=20_000),
}.items()}


def _on_disk(**more: object) -> Case:
    return Case(**{**ON_A_MADE_DISK, **more})                                                # type: ignore[arg-type]


def _ours_on_disk(**more: object) -> Sides:
    return {OURS: _on_disk(**more, options=SMALL_INDEX)}


# On each of DISKS; bench/pairs.py adds the disk's name to the case's.
ON_DISKS: Group = {
    "sync_mmap": _ours_on_disk(workload="put_sync"),
    "sync_pool": _ours_on_disk(workload="put_sync", write_path="pool"),
    "sync_uring": _ours_on_disk(workload="put_sync", write_path="pool", flush_backend="io_uring"),
    "sync_sparse": _ours_on_disk(workload="put_sync", file_state="sparse"),
    "sync": {"fio": _on_disk(workload="put_sync", subject="fio", file_state="prezeroed"),
             "sqlite": _on_disk(workload="put_sync", subject="sqlite")},
    "window_512": _ours_on_disk(workload="put_async_window"),
    "async_pool": _ours_on_disk(workload="put_async", write_path="pool"),
    "async_uring": _ours_on_disk(workload="put_async", write_path="pool", flush_backend="io_uring"),
}

CASES: dict[str, Group] = {
    "beside": BESIDE, "at_rate": AT_RATE, "chronicle": CHRONICLE, "databases": DATABASES, "pages": PAGES, "shared": SHARED,
    "stream": STREAM, "disks": ON_DISKS, "alone": ALONE,
}


def quick(case: Case) -> Case:
    """The same case, so small that it shows nothing but that it runs."""
    options = dict(case.options)
    if case.subject == OURS:
        options = {k: v for k, v in options.items() if k != "pool_window_count"} | SMALL_INDEX
    elif case.subject in ("rocketmq", "chronicle"):
        options |= {"small": True}
    return replace(case, options=options, label=case.shown(), rate=min(case.rate, QUICK_RATE),
                   producers=min(case.producers, 8), window=min(case.window, 64), **QUICK)   # type: ignore[arg-type]
