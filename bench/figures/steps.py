"""The steps of a figures run: what each measures, by which command, and about how long it takes.

A command takes `--dir DIR --out FILE` and, for a run that only shows that everything works, `--quick`. It writes FILE as
{"runs": {CASE: {SUBJECT: [{figure: number, ...}, ...]}}, "missing": {"CASE/SUBJECT": why}, "failed": {"CASE/SUBJECT": text}}.
"""
from dataclasses import dataclass, replace

MINUTES_MAX = 61        # of STEPS together, with their pauses


@dataclass(frozen=True)
class Step:
    name: str
    minutes: float
    command: tuple[str, ...]        # a module of this checkout and its arguments
    shows: str


def _group(name: str, minutes: float, shows: str, reps: int = 3, only: str = "") -> Step:
    some = ("--only", only) if only else ()
    return Step(name, minutes, ("bench.pairs", "--group", name, "--reps", str(reps), *some), shows)


def _driver(name: str, minutes: float, shows: str, *more: str) -> Step:
    return Step(name.replace("_", "-"), minutes, (f"bench.load.{name}", *more), shows)


STEPS: tuple[Step, ...] = (
    _driver("first_touch", 0.3, "what the first use of a page of memory costs on this machine"),
    _group("beside", 9.4, "puts and gets in turns with RocketMQ, until all is flushed and dispatched", reps=2),
    _group("at_rate", 5.6, "latency and processor time of both stores at the same load", reps=1),
    _group("chronicle", 2.7, "asynchronous puts beside Chronicle Queue", reps=2),
    _group("databases", 2.8, "the same work beside SQLite, LMDB and RocksDB", reps=2),
    _group("pages", 1.8, "one durable page of 4 KiB, for each back end and for fio", reps=2),
    _group("shared", 1.2, "durable puts that share syncs", reps=2, only="window_64,asyncio_64,asyncio_512"),
    _group("stream", 2.3, "8 GiB as a stream, beside fio and RocketMQ", reps=2),
    _group("disks", 4.3, "the same cases on several file systems and on a slow disk", reps=1),
    _group("alone", 1.9, "the figures that no peer has: queries, scan, opening after a crash", reps=2,
           only="put_100_tagged,put_1024_default,query,scan,recover"),
    Step("overtime", 0.7, ("bench.figures.overtime",), "the rate over time of a producer at full speed, and its pauses"),
    _driver("views", 0.3, "what a message costs a reader as a view and as a copy"),
    _driver("threads", 0.8, "four threads that put beside one thread"),
    *(replace(_driver("bare", 0.1, "one synchronous put beside a bare C loop of pwrite and fdatasync", "--write-path", path),
              name=f"bare-{path}") for path in ("mmap", "pool")),
    *(replace(_driver("dispatch", 0.1, "how fast queues and index are built", "--props", props), name=f"dispatch-{props}")
      for props in ("lean", "full")),
    _driver("idle", 0.3, "memory of a store at rest, and 10,000 queues"),
    _driver("small_stores", 0.3, "what a store costs a test"),
    _driver("cleaning", 1.9, "a producer's pauses while files are deleted", "--rounds", "2"),
    _driver("fence", 0.2, "how long a failed sync takes to reach everybody who waits"),
    _driver("filter", 0.8, "how many queue entries a second a SQL92 filter passes, beside RocketMQ's evaluator"),
    _driver("timers", 2, "a million timer messages that wait, and a second in which 100,000 are due", "--turns", "3"),
    _driver("compaction", 1, "to feed and to compact a compaction topic, and what puts notice of it"),
    _driver("uring_steps", 0.5, "what each means of io_uring is worth"),
    _driver("put_lock", 1.0, "mutex, spin and adaptive as the put lock", "--reps", "1"),
    _driver("broker", 3.6, "a broker's sends and pulls, its start and its memory, in turns with the real brokers"),
    _driver("clients", 2.8, "synchronous sends of RocketMQ's Java clients, to this library's broker and the real ones"),
    _driver("network", 0.8, "a broker's network thread, alone and beside a Python thread that never rests"),
    _driver("fairness", 2.3, "what one client that asks for too much costs another one's sends, beside the real broker"),
    _driver("embedded", 0.4, "puts of a process that serves a broker, beside puts of one that does not"),
    _driver("replication", 4.3, "lag, waiting puts and catch-up of a master and its slave, beside the real pair"),
    Step("spark", 3.7, ("bench.spark",), "the store in Spark beside Parquet"),
)
# Only with --full: hours.
FULL: tuple[Step, ...] = (
    Step("micro", 0.4, ("bench.micro",), "single calls beside a yardstick of pure Python; no page has these figures"),
    Step("full", 240, ("bench.suite", "--full"), "every combination of write path, back end, file state, peer and disk"),
)
