"""What stands in each marked place: a table, or a paragraph whose numbers are looked up."""
from collections.abc import Callable
from functools import partial

from bench.figures.document import Figures
from bench.figures.served import SERVED
from bench.figures.tables import (
    CPU,
    DURABLE,
    HELD,
    NAMES,
    RATE,
    TAIL,
    Column,
    Row,
    beside,
    bullets,
    cell,
    grid,
    nanoseconds,
    paragraph,
    place,
    plain,
    rate,
    subjects,
    time,
)
from rmq_store.bench.case import OURS

GIB = 1 << 30
DEAR_US = 5.0           # for the first use of 4 KiB: several times what it costs where memory is not lent
WORST = Column("worst pause", "max_us", time)
BURST = Column("a second", "burst_per_s", rate)
MEDIAN = Column("median", "p50_us", time)
P99 = Column("p99", "p99_us", time)
STREAM = Column("MiB/s", "flushed_mib_per_s", plain)
VIEWS = Column("a second", "msgs_per_s", rate)
BODIES = Column("a second", "bodies_msgs_per_s", rate)
DECODED = Column("a second", "decoded_msgs_per_s", rate)

# Rows of README, and first rows of docs/how-fast.md
FIVE = (Row("`put` of 100 bytes", "beside/put_100"),
        Row("`put` of 1 KiB", "beside/put_1024"),
        Row("the same, both stores at the same rate", "at_rate/put_1024", HELD),
        Row("64 threads, each waits until its message of 1 KiB is on the device", "beside/sync_64", DURABLE),
        Row("`put_async` of 1 KiB, 512 in flight, synchronous flush", "beside/window_512", DURABLE))
MORE = (Row("`put` of 1 KiB, a pool of 32 MiB, the default", "alone/put_1024_default"),
        Row("four threads that `put` 100 bytes", "beside/put_100_4"),
        Row("`put_many` of 100 bytes, batches of 128; p99.9 of a batch", "beside/many_100"))
AT_RATE = (Row("`put` of 100 bytes", "at_rate/put_100", HELD), Row("`put` of 1 KiB", "at_rate/put_1024", HELD),
           Row("four threads that `put` 100 bytes", "at_rate/put_100_4", HELD),
           Row("64 threads, each waits for the device, 1 KiB", "at_rate/sync_64", HELD))
PAGES = (Row("`mmap`, `msync`", "pages/page_mmap_msync", DURABLE),
         Row("`mmap`, `fdatasync`", "pages/page_mmap_fdatasync", DURABLE),
         Row("`pool`, `fdatasync`", "pages/page_pool_fdatasync", DURABLE),
         Row("`pool`, `io_uring`, direct", "pages/page_uring", DURABLE),
         Row("default, zeros written ahead", "pages/page_default", DURABLE),
         Row("the same on a sparse file", "pages/page_sparse", DURABLE))
SHARED = (Row("64 threads", "beside/sync_64", DURABLE), Row("`put_async`, 64 in flight", "shared/window_64", DURABLE),
          Row("`put_async`, 512 in flight", "beside/window_512", DURABLE))
ON_DISKS = {"sync_mmap": "`put`, durable, `mmap`", "sync_pool": "`put`, durable, `pool`",
            "sync_uring": "`put`, durable, `io_uring`",
            "sync_sparse": "`put`, durable, `mmap`, sparse file", "window_512": "`put_async`, durable, 512 in flight",
            "async_pool": "`put`, asynchronous, `pool`", "async_uring": "`put`, asynchronous, `io_uring`"}


def machine(f: Figures, results: str = "../bench/results") -> str:
    d = f.document
    about, system = d["machine"], d["machine"]["file_system"]["type"]
    reps = sorted({len(f.runs(f"{step}/{case}", s)) for step in ("beside", "at_rate", "databases", "pages")
                   if step in d["steps"] for case in f.cases(step) for s in f.subjects(f"{step}/{case}")})
    f.runs("beside/put_1024")
    stream = _stream_of_fio(f)
    return paragraph(f"""The tables compare this library with RocketMQ {d['peers']['rocketmq']}, which ran in-process,
        in turns with this library. A rate counts until all messages are flushed and dispatched, on both sides. CPU is
        the processor time of all threads for one message. The machine is
        {about['cpu']}{' (virtual)' if about['virtual_machine'] else ''} with {about['cpus']} cores, Linux {d['kernel']}
        and {system}. {stream}{_first_touch(f)}Each figure is the median of
        {' to '.join(map(str, dict.fromkeys((reps[0], reps[-1]))))} runs of commit {d['commit'][:12]}.
        [figures.json]({results}/figures.json) records the machine and every repetition;
        [figures.html]({results}/figures.html) shows them as pictures.""")


def machine_of_readme(f: Figures) -> str:
    return machine(f, "bench/results")


def _stream_of_fio(f: Figures) -> str:
    """The disk's own rate, where fio is here."""
    try:
        return f"fio writes {f.get('stream/sustained', 'mib_per_s', 'fio'):,.0f} MiB/s to its disk. "
    except LookupError:
        return ""


def _first_touch(f: Figures) -> str:
    """A warning where the page cache is dear: the two sides do not use the same of it."""
    first, again = (f.get("first-touch/first_touch", f"{use}_us", "page cache") for use in ("first", "again"))
    if first < DEAR_US:
        return ""
    return (f"Its host lends it memory page by page: the first use of 4 KiB of page cache costs {first:.0f} µs of processor "
            f"time, the second {plain(again)} µs. RocketMQ writes its log through the page cache and pays this; this library "
            "writes its log past it. Expect several times these rates of RocketMQ on hardware of your own. ")


def five(f: Figures) -> str:
    f.runs("beside/put_1024")
    return beside(f, FIVE, ["rocketmq"])


def rocketmq(f: Figures) -> str:
    f.runs("beside/put_1024")
    return beside(f, (*FIVE[:2], *MORE, *FIVE[3:]), ["rocketmq"], WORST)


def at_rate(f: Figures) -> str:
    f.runs("at_rate/put_1024")
    return beside(f, AT_RATE, ["rocketmq"], WORST)


def bursts(f: Figures) -> str:
    f.runs("beside/many_100")
    return grid(["into memory, not yet on the device", "rmq_store: a second, burst", "RocketMQ: a second, burst"],
                [[row.text, cell(f, row.case, BURST), cell(f, row.case, BURST, "rocketmq")] for row in (*FIVE[:2], *MORE[1:])])


def reads(f: Figures) -> str:
    f.runs("beside/read")
    rows = [("not decoded: views; RocketMQ's buffers", VIEWS, VIEWS), ("views, each body looked at", BODIES, None),
            ("every field decoded", DECODED, DECODED)]
    return grid(["pulls of 32 messages", "rmq_store: a second", "RocketMQ: a second"],
                [[text, cell(f, "beside/read", ours), cell(f, "beside/read", theirs, "rocketmq") if theirs else ""]
                 for text, ours, theirs in rows])


def _seconds_per_gib(f: Figures, key: str) -> str:
    return plain(f.get("alone/recover", key) / 1e3 / (f.get("alone/recover", "log_bytes") / GIB))


def _try(make: Callable[[], str]) -> str:
    try:
        return make()
    except LookupError:
        return "–"


def alone(f: Figures) -> str:
    one = f.get
    rows: list[tuple[str, Callable[[], str]]] = [
        ("a `put` of 100 bytes: median of the call", lambda: f"{one('beside/put_100', 'median_ns'):.0f} ns"),
        ("a `put` of 100 bytes with tags and one key: median", lambda: f"{one('alone/put_100_tagged', 'median_ns'):.0f} ns"),
        ("a synchronous `put` of 1 KiB over `pool`, beside a bare C loop of write and fdatasync",
         lambda: f"{one('bare-pool/sync_single_pool', 'ratio'):.2f} of its time"),
        ("a query by key, one hit: median", lambda: time(one("alone/query", "p50_us"))),
        ("dispatch alone: without keys; with UNIQ_KEY and one key",
         lambda: f"{rate(one('dispatch-lean/dispatch_lean', 'dispatched_per_s'))}/s; "
                 f"{rate(one('dispatch-full/dispatch_full', 'dispatched_per_s'))}/s"),
        ("open after a clean close", lambda: f"{plain(one('alone/recover', 'clean_ready_ms'))} ms"),
        ("open after a kill, until queues are complete", lambda: f"{_seconds_per_gib(f, 'dirty_ready_ms')} s a GiB"),
        ("the same without a checkpoint: the whole log is read and written again",
         lambda: f"{_seconds_per_gib(f, 'dirty_no_checkpoint_ready_ms')} s a GiB"),
        ("the log read with checksums, warm", lambda: f"{plain(one('alone/scan', 'crc_gib_per_s'))} GiB/s"),
        ("private memory beyond the pool, 10,000 queues",
         lambda: f"{plain(one('idle/idle_queues', 'beyond_pool_mib', 'mmap'))} MiB"),
        ("a failed sync, until the last of 64 waiting threads has the error",
         lambda: f"{plain(max(one('fence/fence', 'last_ms_max', s) for s in f.subjects('fence/fence')))} ms at most"),
    ]
    return grid(["", "rmq_store"], [[text, _try(make)] for text, make in rows])


def threads(f: Figures) -> str:
    case = "threads/threads"
    return paragraph(f"""Threads that put without a pause take turns at the GIL. Each time the GIL changes hands, the
        next holder has to wake up. On {f.document['machine']['cpus']} cores, four such threads reach
        {f.get(case, 'ratio'):.2f} of the rate of one thread. A loop without any store reaches
        {f.get(case, 'bare_ratio'):.2f}. With `sys.setswitchinterval(0.1)`, instead of the interpreter's 5 ms, the two
        values are {f.get(case, 'long_ratio'):.2f} and {f.get(case, 'bare_long_ratio'):.2f} (`python -m
        bench.load.threads`). The longer interval suits a service in which all threads put. A service that must answer
        within milliseconds keeps the default, or puts from one thread (`put_many`, `put_async`).""")


def pages(f: Figures) -> str:
    f.runs("pages/page_default")
    columns = (DURABLE, CPU, MEDIAN, P99, TAIL)
    rows = [[row.text, *(cell(f, row.case, c) for c in columns)] for row in PAGES]
    rows += [[text, *(cell(f, case, c, "fio") for c in columns)] for text, case in (
        ("fio, write and fdatasync", "pages/page_fio"), ("fio, O_DIRECT and O_DSYNC", "pages/page_fio_direct"),
        ("fio on a sparse file", "pages/page_sparse"))]
    return grid(["one durable `put` of a 4 KiB record", *(c.head for c in columns)], rows)


def shared(f: Figures) -> str:
    f.runs("shared/window_64")
    rows = [Row("one thread", "databases/one_sync_1024", DURABLE), *SHARED,
            Row("asyncio, 64 tasks", "shared/asyncio_64", DURABLE), Row("asyncio, 512 tasks", "shared/asyncio_512", DURABLE)]
    return beside(f, rows, ["rocketmq"])


def databases(f: Figures) -> str:
    parts = []
    for case, text, column in (("one_sync_1024", "durable puts of 1 KiB, one thread", DURABLE),
                               ("many_100", "batches of 128 messages of 100 bytes, until all is on the device", RATE),
                               ("async_1024", "puts of 1 KiB without a sync, until all is on the device", RATE)):
        table = subjects(f, f"databases/{case}", column, (OURS, "sqlite", "lmdb", "rocksdb"))
        parts.append(table.replace("|  |", f"| {text} |", 1))
    return "\n".join(parts)


def chronicle(f: Figures) -> str:
    f.runs("chronicle/async_1024")
    return beside(f, [Row("`put`, 100 bytes", "chronicle/async_100"),
                      Row("`put`, 1 KiB, a pool of 2 GiB", "chronicle/async_1024")], ["chronicle"], WORST)


def _mib_per_s(f: Figures, case: str, subject: str) -> str:
    """What reached the device. RocketMQ counts messages, and the size of a record."""
    try:
        return f"{f.get(case, 'mib_per_s' if subject == 'fio' else 'flushed_mib_per_s', subject):,.0f}"
    except LookupError:
        return f"{f.get(case, 'sustained_per_s', subject) * f.get(case, 'record_bytes', subject) / (1 << 20):,.0f}"


def stream(f: Figures) -> str:
    case, columns = "stream/sustained", (CPU, TAIL, WORST)
    rows = [[text, _try(partial(_mib_per_s, f, case, s)), *(cell(f, case, c, s) for c in columns)]
            for text, s in (("`pool`, `io_uring`, direct", OURS), ("fio, O_DIRECT, same depth", "fio"),
                            ("RocketMQ, pool", "rocketmq")) if s in f.subjects(case)]
    return grid(["4 KiB records, 8 GiB, until the device has them", "MiB/s", *(c.head for c in columns)], rows)


def disks(f: Figures) -> str:
    names = list(dict.fromkeys(case.partition(" on ")[2] for case in f.cases("disks")))
    rows = []
    for case, text in ON_DISKS.items():
        key = "sustained_per_s" if case.startswith("async") else "msgs_per_s"
        rows.append([text, *(cell(f, f"disks/{case} on {d}", Column("", key, rate)) for d in names)])
    rows += [[f"{NAMES[peer]}, durable", *(cell(f, f"disks/sync on {d}", DURABLE, peer) for d in names)]
             for peer in ("fio", "sqlite")]
    return grid(["puts of 1 KiB a second", *names], rows)


def uring(f: Figures) -> str:
    parts = []
    columns = (Column("MiB/s", "mib_per_s", plain), MEDIAN, P99, Column("CPU µs a write", "cpu_us_per_write", plain))
    for case in f.cases("uring-steps"):
        name = f"uring-steps/{case}"
        parts.append(grid([case.removeprefix("uring: "), *(c.head for c in columns)],
                          [[s, *(cell(f, name, c, s) for c in columns)] for s in f.subjects(name)]))
    return "\n".join(parts)


def put_lock(f: Figures) -> str:
    columns = (Column("a second", "rate_per_s", rate), Column("CPU ns", "cpu_ns_per_msg", nanoseconds))
    locks = ("mutex", "spin", "adaptive")
    rows = []
    for case in f.cases("put-lock"):
        name = f"put-lock/{case}"
        if case.endswith(" 16 producers"):
            rows.append([case.removeprefix("put_lock: ").removesuffix(", 16 producers"),
                         *(cell(f, name, c, lock) for lock in locks for c in columns)])
    return grid(["16 producers", *(f"{lock}: {c.head}" for lock in locks for c in columns)], rows)


def put_lock_choice(f: Figures) -> str:
    cases = [name for case in f.cases("put-lock") if {"mutex", "spin"} <= set(f.subjects(name := f"put-lock/{case}"))]
    crowd = [name for name in cases if name.endswith(" 16 producers")]

    def more(names: list[str], key: str) -> str:
        return f"{sum(f.get(n, key, 'spin') > f.get(n, key, 'mutex') for n in names)} of {len(names)}"
    return paragraph(f"""`spin` is faster than `mutex` in {more(cases, 'rate_per_s')} measurements
        (`python -m bench.load.put_lock`). With 16 producers it takes more CPU in {more(crowd, 'cpu_ns_per_msg')}.""")


def views(f: Figures) -> str:
    ways = {"views": "as views", "bodies": "each body looked at", "copied_bodies": "each body copied",
            "copies": "each message copied"}
    column = Column("", "fastest_ns", nanoseconds)
    f.cases("views")
    return grid(["body, ns a message", *ways.values()],
                [[text, *(cell(f, f"views/views_{size}", column, way) for way in ways)]
                 for size, text in ((100, "100 bytes"), (1024, "1 KiB"), (65536, "64 KiB"))])


def copies(f: Figures) -> str:
    def times(size: int) -> str:
        return plain(f.get(f"views/views_{size}", "fastest_ns", "copies") / f.get(f"views/views_{size}", "fastest_ns", "views"))
    return paragraph(f"""So the store copies nothing unless you ask for a copy. A copy would cost a reader of 100 bytes
        {times(100)} times the cost of a view, and a reader of 64 KiB {times(65536)} times. Views are as safe as copies.""")


def small_stores(f: Figures) -> str:
    def ms(subject: str, what: str) -> str:
        return plain(f.get("small-stores/small_store_async", f"{what}_ms_median", subject))
    size = f.get("small-stores/small_store_async", "disk_bytes", "mmap") / (1 << 20)
    return paragraph(f"""The fixture is a real store. It has the same files, threads and syncs as in production, with
        the sizes of profile `test`. It takes {size:.1f} MiB of disk. On {f.document['machine']['file_system']['type']},
        on a machine with {f.document['machine']['cpus']} cores, the store opened in {ms('mmap', 'open')} ms and closed
        in {ms('mmap', 'close')} ms. With `write_path="pool"` it took {ms('pool', 'open')} and {ms('pool', 'close')} ms.""")


def cleaning(f: Figures) -> str:
    case = "cleaning/cleaning_mmap"
    worst = {side: time(f.get(case, "max_us", side)) for side in ("without", "cleaning")}
    tail = {side: time(f.get(case, "p999_us", side)) for side in ("without", "cleaning")}
    gib = f.get(case, "deleted_gib", "cleaning")
    return paragraph(f"""**Pauses.** The store paces deletion, and holds no lock that a put waits for. A producer made
        50,000 puts a second while {plain(gib)} GiB were deleted, and again without deletion. Its longest pause was
        {worst['cleaning']} with deletion and {worst['without']} without, and its p99.9 was {tail['cleaning']} and
        {tail['without']}. These are medians of the rounds on {f.document['machine']['file_system']['type']}, on a
        machine with {f.document['machine']['cpus']} cores.""")


def spark(f: Figures) -> str:
    def one(key: str) -> float:
        return f.get("spark/ratios", key)
    return bullets(
        f"full rows at {one('full_vs_parquet'):.2f} of the speed at which Spark reads them from uncompressed Parquet; "
        f"{one('metadata_mrows_s'):.1f} M rows/s without bodies;",
        f"queues rebuilt at {one('kernel_queues_gib_s'):.1f} GiB/s, {one('queues_vs_shuffle'):.1f} times as fast as a shuffle "
        "that makes the same queue files, and "
        f"{one('queues_vs_shuffle_without_its_write'):.1f} times as fast as a shuffle that writes nothing;",
        f"CRC audit at {one('kernel_audit_gib_s'):.1f} GiB/s in the task; "
        f"export {one('export_vs_parquet_parquet'):.1f} times as fast as Spark's own Parquet to Parquet;",
        f"ingest staged at {one('staged_mib_s'):.0f} MiB/s; 1,000 files planned in {one('planning_1000_files_ms'):.0f} ms.")


_MADE: dict[str, Callable[[Figures], str]] = {
    "machine": machine, "machine-of-readme": machine_of_readme,
    "five": five, "rocketmq": rocketmq, "at-rate": at_rate, "bursts": bursts, "reads": reads,
    "alone": alone,
    "threads": threads, "pages": pages, "shared": shared, "databases": databases, "chronicle": chronicle, "stream": stream,
    "disks": disks, "uring": uring, "put-lock": put_lock, "put-lock-choice": put_lock_choice, "views": views, "copies": copies,
    "small-stores": small_stores, "cleaning": cleaning, "spark": spark, **SERVED,
}
PLACES = {name: place(make) for name, make in _MADE.items()}
