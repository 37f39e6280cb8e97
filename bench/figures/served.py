"""The marked places of docs/broker.md and docs/replication.md: figures of what goes over a network."""
from collections.abc import Callable, Sequence

from bench.figures.document import Figures, NotMeasured
from bench.figures.tables import NAMES, Column, bullets, cell, grid, paragraph, plain, rate, time
from bench.load.subjects import BARE, OURS, PAIR, POOL, RATES, REAL, SLEEPS, SUBJECTS

PER_S = Column("a second", "per_s", rate)
P50, P99 = Column("median", "p50_us", time), Column("p99", "p99_us", time)
CPU = Column("CPU", "cpu_us", time)
# (text, case of bench/load/broker.py, column)
BROKER = tuple((f"{text}: {column.head}", f"broker/{case}", column)
               for text, case in (("send, one at a time", "send_1x1"), ("send, 16 connections, 16 each", "send_16x16"),
                                  ("send, 64 connections, 32 each", "send_64x32"))
               for column in (PER_S, P99, CPU)) + (
    ("pull of 32, one at a time: median", "broker/pull_1x1", P50),
    ("pull of 32, 16 connections, 4 each: messages a second", "broker/pull_16x4", Column("", "messages_per_s", rate)),
    ("the same: CPU of a message", "broker/pull_16x4", Column("", "cpu_us_per_message", time)))
HOSTILE = {"new_groups": "heartbeats of 1,024 new groups", "large_topic": "queries of a topic with 65,535 queues",
           "large_group": "queries of a group with 4,096 subscriptions", "json_bodies": "bodies of 15 MB of brackets",
           "subscriptions": "16,360 subscriptions that change", "held_tags": "20,000 held pulls with tags",
           "held_filters": "4,000 held pulls with SQL92 filters", "new_topics": "sends to new topics"}
REST = (("from exec on an empty directory until it answers", "broker/rest", Column("", "ready_ms", lambda ms: time(ms * 1e3))),
        ("memory at rest, MiB", "broker/rest", Column("", "rss_mib", plain)))


def _name(subject: str) -> str:
    names = {POOL: "rmq_store, pool", BARE: "bare", **{name: f"RocketMQ {release}" for name, release in REAL.items()}}
    return names.get(subject) or NAMES[subject]


def _table(f: Figures, head: str, rows: Sequence[tuple[str, str, Column]], subjects: Sequence[str]) -> str:
    return grid([head, *map(_name, subjects)],
                [[text, *(cell(f, case, column, s) for s in subjects)] for text, case, column in rows])


def _bare(subjects: Sequence[str], what: str) -> str:
    return "\n" + paragraph("Bare: " + what) if BARE in subjects else ""


def broker(f: Figures) -> str:
    f.runs("broker/send_64x32")
    subjects = [s for s in (OURS, POOL, *REAL, BARE) if s in f.subjects("broker/send_64x32")]
    return (_table(f, "messages of 1 KiB", BROKER, subjects) + _bare(subjects, """a server that stores nothing and answers with
            as many bytes: what loopback and the load's generator leave to a broker on these cores.""")
            + "\n" + _table(f, "a broker", REST, [OURS, *(s for s in subjects if s in REAL)]))


def clients(f: Figures) -> str:
    f.runs("clients/rocketmq-4.9_1")
    rows = []
    for release, version in REAL.items():
        for threads in (1, 16, 64):
            case = f"clients/{release}_{threads}"
            rows.append([f"client {version}, {threads} thread{'s' if threads > 1 else ''}",
                         *(cell(f, case, column, s) for s in (OURS, release) for column in (PER_S, P99))])
    return grid(["synchronous sends of 1 KiB", "rmq_store: a second", "p99", "RocketMQ of that release: a second", "p99"], rows)


def embedding(f: Figures) -> str:
    def times(load: str) -> str:
        quiet, busy = (f.get(f"network/{load}{suffix}", "p99_us", "native") for suffix in ("", "_busy"))
        return f"{time(quiet)} and {time(busy)}"
    cpu = f.get("network/send_16x16", "cpu_us_rmq-network", "native")
    ratios = [f"{f.get('embedded/embedded_idle', 'ratio', path):.2f}" for path in ("mmap", "pool")]
    scatter = [f"{f.get('embedded/embedded_control', 'ratio', path):.2f}" for path in ("mmap", "pool")]
    return bullets(
        f"""The p99 of a send is {times('send_1x1')} without and with a Python thread of the broker's process that never rests;
        of a pull, {times('pull_1x1')}. Broker, busy thread and clients share {f.document['machine']['cpus']} cores.""",
        f"""The network thread uses {time(cpu)} of processor time for a send when 16 connections have 16 sends under way
        each.""",
        f"""A `put` of 100 bytes beside an idle broker of the same process takes {ratios[0]} of the processor time of a `put`
        without one over `mmap`, and {ratios[1]} over `pool`. Two stores without a broker differ by {scatter[0]} and
        {scatter[1]}.""")


def fairness(f: Figures) -> str:
    f.runs("fairness/new_groups")
    share = Column("rate kept", "share", lambda value: f"{100 * value:.0f} %")
    end = Column("ends after", "end_s", lambda s: time(s * 1e6))
    sides = [s for s in (OURS, "rocketmq-5.x") if s in f.subjects("fairness/new_groups")]
    head = ["beside one client with", *(f"{_name(s)}: {text}" for s in sides for text in ("rate kept", "p99")), "ends after"]
    return grid(head, [[text, *(cell(f, f"fairness/{kind}", column, s) for s in sides for column in (share, P99)),
                        cell(f, f"fairness/{kind}", end)] for kind, text in HOSTILE.items()])


def _try(make: Callable[[], str]) -> str:
    try:
        return make()
    except NotMeasured:
        return "–"


def replication(f: Figures) -> str:
    f.runs("replication/window")
    rows = (("`put_async`, 512 in flight, each waits for the slave: a second", "replication/window", PER_S),
            ("the same: p99", "replication/window", P99),
            ("a slave that catches up: MiB a second", "replication/catch_up", Column("", "mib_per_s", plain)),
            ("the same: CPU of both sides for a MiB", "replication/catch_up", Column("", "cpu_us_per_mib", time)))
    subjects = [s for s in (*SUBJECTS, BARE) if s in f.subjects("replication/window")]
    return _table(f, "messages of 1 KiB, master and slave on one machine", rows, subjects) + _bare(
        subjects, """the same calls of `put_async` to a store without a slave, which is the producer's own work in Python, and a
        copy of the same bytes over a socket into a file.""") + _beside_bare_pair(f)


def _beside_bare_pair(f: Figures) -> str:
    case = "replication/window"
    ours, pair = f.get(case, "per_s"), f.get(case, "per_s", PAIR)
    return "\n" + paragraph(f"""A master and a slave in C, without a store, write, send, receive, write and acknowledge as many
        bytes; their producer computes before each record as long as the producer above takes for a `put_async` to a store
        without a slave. With 512 records under way they have {rate(pair)} a second. This library, which also checks and
        dispatches, has {ours / pair:.2f} of that.""")


def _lag(f: Figures, asked: int) -> str:
    one, case = f.get, f"replication/lag_{asked}"
    return f"""{rate(asked)} puts of 1 KiB a second: a reader of the slave has a message {time(one(case, 'p50_us'))} after its
        put was due in the median, and {time(one(case, 'p99_us'))} in the 99th percentile. The master held
        {rate(one(case, 'held_per_s'))}. The producer filled a core, and all other threads of both sides used
        {plain(one(case, 'cores_beside'))} of another one. If the producer sleeps until its puts are due, and so puts them late
        and in small bursts, the two values are {time(one(case, 'p50_us', SLEEPS))} and {time(one(case, 'p99_us', SLEEPS))}. The
        99th percentile of the puts themselves, from when they were due, is {time(one(case, 'put_p99_us'))}; without a slave it
        is {time(one(case, 'put_p99_us', BARE))}.{_lag_bare(f, case)}{_behind(f, case)}"""


def _lag_bare(f: Figures, case: str) -> str:
    p50, p99 = (time(f.get(case, key, PAIR)) for key in ("p50_us", "p99_us"))
    return f" The same path without a store, in C, has {p50} and {p99} in the place of the first two values."


def _behind(f: Figures, case: str) -> str:
    def values(subject: str) -> str:
        return " and ".join(time(f.get(case, key, subject)) for key in ("behind_p50_us", "behind_p99_us"))

    return f""" Without a reader, which takes a part of the processor from the slave, the slave's log is behind by
        {values(OURS)}, and by {values(SLEEPS)} if the producer sleeps; the path in C by {values(PAIR)}."""


def lag(f: Figures) -> str:
    one, single, puts = f.get, "replication/single", "replication/catch_up_puts"
    copied = one("replication/catch_up", "mib_per_s") / one("replication/catch_up", "mib_per_s", "bare")
    return bullets(
        *(_lag(f, asked) for asked in RATES),
        f"""A `put` of a master with a slave takes {one('replication/put', 'ratio', 'slave'):.2f} of the processor time of a
        `put` without replication. With a port on which nobody connects, the value is
        {one('replication/put', 'ratio', 'nobody'):.2f}.""",
        f"""One `put` that waits for the slave takes {time(one(single, 'p50_us'))}: {one(single, 'ratio'):.2f} of the sum of a
        `put` that does not wait ({time(one(single, 'put_p50_us'))}) and a bare round trip of its bytes
        ({time(one(single, 'trip_p50_us'))}).""",
        f"""A slave catches up at {copied:.2f} of the speed of a bare copy of the same bytes over a socket into a file.
        Meanwhile, a put of the master takes {_try(lambda: format(one(puts, 'wall_ratio'), '.2f'))} of its time before, and
        {_try(lambda: format(one(puts, 'cpu_ratio'), '.2f'))} of its processor time.""") + "\n" + paragraph(
        f"Producer, master, slave and reader share {f.document['machine']['cpus']} cores.")


SERVED: dict[str, Callable[[Figures], str]] = {"broker": broker, "clients": clients, "embedding": embedding,
                                               "fairness": fairness,
                                               "replication": replication, "lag": lag}
