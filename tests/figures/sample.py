"""A small document in which every place finds its figures."""
from typing import Any

from bench.figures.served import HOSTILE
from bench.figures.steps import STEPS
from rmq_store.bench.case import OURS

PEER = "rocketmq"
LATENCY = [[0.0, 0.4], [0.9, 0.5], [0.99, 0.8], [0.999, 113.0], [0.9999, 900.0], [1.0, 4000.0]]
LOCKS = ("mutex", "spin", "adaptive")


def _run(rate: float = 1000.0, **more: Any) -> dict[str, Any]:
    return {"sustained_per_s": rate, "msgs_per_s": rate, "burst_per_s": 2 * rate, "cpu_ns_per_msg": 700.0, "p50_us": 0.4,
            "p99_us": 0.8, "p999_us": 113.0, "max_us": 4000.0, "median_ns": 129.0, "held_per_s": 640_000, "record_bytes": 1126,
            "mib_per_s": 1660.0, "flushed_mib_per_s": 1553.0, "sustained_mib_per_s": 375.0, "foreign": 0.01,
            "latency": LATENCY, **more}


def _all(cases: str, *subjects: str, **more: Any) -> dict[str, Any]:
    return {case: {s: [_run(1000.0 * (n + 1), **more) for n in range(3)] for s in subjects} for case in cases.split()}


def runs() -> dict[str, dict[str, Any]]:
    """The runs of each step, by its name."""
    kinds = ("ext4", "xfs")
    disks = [f"{case} on {disk}" for disk in kinds for case in ("sync_mmap", "async_pool")]
    ratios = ("full_vs_parquet", "metadata_mrows_s", "kernel_queues_gib_s", "queues_vs_shuffle", "staged_mib_s",
              "queues_vs_shuffle_without_its_write", "kernel_audit_gib_s", "export_vs_parquet_parquet",
              "planning_1000_files_ms")
    recovered = {"clean_ready_ms": 31, "dirty_ready_ms": 480, "dirty_no_checkpoint_ready_ms": 1900, "log_bytes": 1 << 30}
    lock = {f"put_lock: puts, {n} producers": {name: [{"rate_per_s": 1000 * i, "cpu_ns_per_msg": 12}]
                                               for i, name in enumerate(LOCKS)} for n in (1, 16)}
    return {
        "beside": {**_all("put_100 put_1024 put_100_4 many_100 sync_64 window_512", OURS, PEER),
                   **_all("read", OURS, PEER, bodies_msgs_per_s=6.3e6, decoded_msgs_per_s=5.8e5)},
        "at_rate": _all("put_100 put_1024 put_100_4 sync_64", OURS, PEER),
        "chronicle": _all("async_100 async_1024", OURS, "chronicle"),
        "databases": _all("one_sync_1024 many_100 async_1024", OURS, "sqlite", "lmdb", "rocksdb"),
        "pages": {**_all("page_mmap_msync page_mmap_fdatasync page_pool_fdatasync page_uring page_default", OURS),
                  **_all("page_fio page_fio_direct", "fio"), **_all("page_sparse", OURS, "fio")},
        "shared": {**_all("window_64", OURS, PEER), **_all("asyncio_64 asyncio_512", OURS)},
        "stream": _all("sustained", OURS, "fio", PEER),
        "disks": {**{c: {OURS: [_run()]} for c in disks},
                  **{f"sync on {d}": {"fio": [_run()], "sqlite": [_run()]} for d in kinds}},
        "alone": _all("put_100_tagged put_1024_default query scan recover", OURS, crc_gib_per_s=4.2, **recovered),
        "overtime": {name: {OURS: [{"slices": [5, 0, 7, 6], "slice_ms": 50.0, "max_us": 61_000.0, "sustained_per_s": 90}]}
                     for name in ("mmap", "pool")},
        "views": {f"views_{size}": {way: [{"fastest_ns": 100.0 * (n + 1)}]
                                    for n, way in enumerate(("views", "bodies", "copied_bodies", "copies"))}
                  for size in (100, 1024, 65536)},
        "threads": {"threads": {OURS: [{"ratio": 0.92, "bare_ratio": 0.98, "long_ratio": 0.94, "bare_long_ratio": 0.97}]}},
        "bare-pool": {"sync_single_pool": {OURS: [{"ratio": 0.91}], "bare": [_run()]}},
        "dispatch-lean": {"dispatch_lean": {OURS: [{"dispatched_per_s": 26e6}]}},
        "dispatch-full": {"dispatch_full": {OURS: [{"dispatched_per_s": 3.6e6}]}},
        "idle": {"idle_queues": {"mmap": [{"beyond_pool_mib": 11.0}]}},
        "fence": {"fence": {"fdatasync (pool)": [{"last_ms_max": 4.5}], "msync (mmap)": [{"last_ms_max": 3.5}]}},
        "first-touch": {"first_touch": {s: [{"first_us": 53.0, "again_us": 0.8}] for s in ("memory", "page cache")}},
        "small-stores": {"small_store_async": {s: [{"open_ms_median": 5.6, "close_ms_median": 3.1, "disk_bytes": 4296704}]
                                               for s in ("mmap", "pool")}},
        "cleaning": {"cleaning_mmap": {s: [{"max_us": 28_000.0, "p999_us": 55.0, "deleted_gib": 10.0}]
                                       for s in ("without", "cleaning")}},
        "uring-steps": {"uring: a stream": {"pwrite": [{**_run(), "cpu_us_per_write": 36.8}]}},
        **served(), "put-lock": lock, "spark": {"ratios": {OURS: [dict.fromkeys(ratios, 3.0)]}},
    }


def served() -> dict[str, dict[str, Any]]:
    """Of steps that go over a network."""
    real = ("rocketmq-4.9", "rocketmq-5.x")
    run = {"per_s": 310_000.0, "p50_us": 40.0, "p99_us": 900.0, "cpu_us": 2.5, "messages_per_s": 1.1e6,
           "cpu_us_per_message": 0.4}
    pair = {"per_s": 90_000.0, "p99_us": 9000.0, "mib_per_s": 700.0, "cpu_us_per_mib": 900.0}
    ratio = {"ratio": 1.01}
    return {
        "broker": {**{f"{what}_{load}": {s: [run] for s in (OURS, "rmq_store-pool", *real)}
                      for what, loads in (("send", ("1x1", "16x16", "64x32")), ("pull", ("1x1", "16x4"))) for load in loads},
                   "rest": {s: [{"ready_ms": 120.0, "rss_mib": 29.0}] for s in (OURS, *real)}},
        "clients": {f"{release}_{threads}": {s: [run] for s in (OURS, release)} for release in real for threads in (1, 16, 64)},
        "network": {f"{load}{beside}": {"native": [{**run, "cpu_us_rmq-network": 2.0}]}
                    for load in ("send_1x1", "send_16x16", "pull_1x1") for beside in ("", "_busy")},
        "fairness": {kind: {s: [{"share": 0.7, "p99_us": 2000.0, "alone_per_s": 50_000.0, "per_s": 35_000.0,
                                 **({"end_s": 0.4} if s == OURS else {})}] for s in (OURS, "rocketmq-5.x")}
                     for kind in HOSTILE},
        "embedded": {f"embedded_{case}": {path: [ratio] for path in ("mmap", "pool")}
                     for case in ("control", "idle", "holding")},
        "replication": {"window": {s: [pair] for s in (OURS, *real, "bare pair")},
                        **{f"lag_{n}": {s: [{"p50_us": 150.0, "p99_us": 1500.0, "held_per_s": n, "cores_beside": 0.6,
                                             "put_p99_us": 40.0, "behind_p50_us": 70.0, "behind_p99_us": 300.0}]
                                         for s in (OURS, "sleeps", "bare", "bare pair")}
                           for n in (20_000, 100_000)},
                        "catch_up": {s: [pair] for s in (OURS, *real, "bare")},
                        "put": {s: [ratio] for s in ("nobody", "slave")},
                        "single": {OURS: [{"p50_us": 30.0, "ratio": 1.4, "put_p50_us": 0.5, "trip_p50_us": 20.0}]},
                        "catch_up_puts": {OURS: [{"wall_ratio": 1.05, "cpu_ratio": 1.01}]}},
    }


def document(**more: Any) -> dict[str, Any]:
    """As bench/results/figures.json holds it."""
    by_name, shows = runs(), {step.name: step for step in STEPS}
    steps = {name: {"command": list(shows[name].command), "shows": shows[name].shows, "begin": "2026-11-24T01:00:00Z",
                    "end": "2026-11-24T01:09:00Z", "runs": found, "missing": {}, "failed": {}}
             for name, found in by_name.items()}
    return {"commit": "0123456789abcdef", "kernel": "6.1", "disk": "d", "quick": False, "dirty": False,
            "begin": "2026-11-24T01:00:00Z", "end": "2026-11-24T01:48:00Z", "absent": {},
            "machine": {"cpu": "Z80", "cpus": 2, "virtual_machine": False, "file_system": {"type": "ext4"}, "java": None},
            "peers": {"rocketmq": "4.9.8"}, "steps": steps, **more}
