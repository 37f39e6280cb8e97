"""A master and its slave over loopback: lag, what the master's puts notice, and the real pair beside them, in turns.

    lag_RATE        puts of 1 KiB at a rate; until a reader of the slave has each, counted from when its put was due, and until
                    the put has returned (`put_`), which `bare`, a master that nobody follows, shows alone. `behind_`: in a
                    run of its own, how long the first message that the slave's log lacks has been due, at moments half a
                    millisecond apart: no reader wakes for each message. `bare pair`: the same path without a store, in C
                    (bench/load/bare_pair.c)
    put             a put of the master beside one of a store without replication, in processor time: nobody connected; a slave
    single          one put that waits for the slave, beside a put that does not plus a bare round trip of its bytes (`ratio`)
    window          SYNC_MASTER and asynchronous flush, 512 puts under way, in-process on both sides; `bare`: the same calls
                    of a store that has no slave to wait for, which is the producer's own work; `bare pair`: 512 records
                    under way without a store, and a producer that computes before each as long as those calls do
    catch_up        an empty slave gets a log of --mib: speed, and processor time of both sides for one MiB; `bare` copies the
                    same bytes over a socket into a file, `bare, not stored` into nothing
    catch_up_puts   rounds of puts of the master while a slave catches up, beside rounds before it (`wall_ratio`, `cpu_ratio`)

The lag's producer spins until a put is due, so it fills a processor; that of `sleeps` sleeps, as a service does that waits for
work, so that its puts come late and in small bursts. `cores_beside` is what all other threads of both sides use
meanwhile, the slave's reader with them: the lag needs so many processors more, and that they are free when a message comes.
Before `window` counts, the host lends the memory that both sides will fill (bench/load/lent.py): else it is the host that is
measured.

The sides are processes that bench/load/replica.py describes; the real ones are tools/interop/src/Replica.java. 5.3.3 has
inSyncReplicas=2, because it otherwise waits for no slave.

    python -m bench.load.replication --dir DIR --reps 2 --out bench/results/replication.json
"""
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.load.brokers import INTEROP, NotHere, compiled, cpu_s, free_port
from bench.load.driver import keep, parser
from bench.load.embedded import compare, seconds
from bench.load.lent import Lent
from bench.load.others import repeated
from bench.load.subjects import BARE, OURS, PAIR, RATES, REAL, SLEEPS
from rmq_store import MessageStore
from rmq_store.bench.runner import scratch, settle

WINDOW = 512
HEAD = 12               # bytes before the log's in a frame of replication
COUNTED = 0.2           # a JVM compiles during the first part of a catch-up, so no side's counts
OFTEN = {("catch_up", OURS): 3, ("catch_up_puts", OURS): 3}     # in a repetition: short, and of two cores three are wanted
ROUND, PAUSE_S = 5000, 0.05
MIB_MAX = 900           # in one file of the log
WINDOW_MIB = 2000       # of page cache that a second of `window` fills on both sides together

Row = dict[str, Any]


class Side:
    """A master or a slave, a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process, self._log = process, log
        self.ready = self.answer()
        self.address = self.ready.get("address", "")

    def ask(self, *words: object) -> Row:
        self.tell(*words)
        return self.answer()

    def tell(self, *words: object) -> None:
        """A command whose answer comes later."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)

    def answer(self) -> Row:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: Row = json.loads(line)
                return found
        self.process.wait()
        said = self._log.read_text(errors="replace").strip().splitlines()
        why = said[-1] if said else f"it ended with {self.process.returncode}"
        raise NotHere(why) if self.process.returncode == 77 else RuntimeError(why)


@contextmanager
def side(subject: str, part: str, path: Path, **options: object) -> Iterator[Side]:
    """Raises NotHere where the real store cannot run."""
    port, words = free_port(), [f"{name}={value}" for name, value in options.items()]
    if subject == OURS:
        command = [sys.executable, "-m", "bench.load.replica", part, str(path), *words]
    else:
        command = [str(INTEROP / "replica_with_rocketmq.sh"), "--rocketmq", REAL[subject], part, str(path), str(port), *words]
    log = path.with_suffix(".log")
    with open(log, "wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        found = Side(process, log)
        found.address = found.address or f"127.0.0.1:{port}"
        yield found
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def pair(subject: str, base: Path, **options: object) -> Iterator[tuple[Side, Side]]:
    """A master, and a slave that follows it."""
    with side(subject, "master", base / "master", **options) as master, side(subject, "slave", base / "slave") as slave:
        slave.ask("follow", master.address)
        master.ask("connected")
        yield master, slave


def lag(base: Path, args: Any) -> list[Row]:
    rows = []
    for rate in (RATES[:1] if args.quick else RATES):
        case = f"lag_{rate}"
        rows += [{"case": case, "subject": subject, **_lag(base, args, rate, how)}
                 for subject, how in ((OURS, "spins"), (SLEEPS, "sleeps"))]
        with scratch(base) as place, side(OURS, "master", place / "alone") as alone:
            held = alone.ask("due", rate, args.seconds, "spins")
            held.pop("producer_s")
            rows.append({"case": case, "subject": BARE, **held})
        with scratch(base) as place:
            pair_row = _bare_pair(base, place, "lag", args.seconds, rate, 0)
        with scratch(base) as place:
            behind = _bare_pair(base, place, "behind", args.seconds, rate, 0)
        rows.append({"case": case, "subject": PAIR, **pair_row, **{f"behind_{k}": behind[k] for k in ("p50_us", "p99_us")}})
    return rows


def _lag(base: Path, args: Any, rate: int, how: str) -> Row:
    with scratch(base) as place, pair(OURS, place) as (master, slave):
        before = master.cpu_s() + slave.cpu_s()
        slave.tell("lag", int(rate * args.seconds))
        held = master.ask("due", rate, args.seconds, how)
        found = slave.answer()
        beside = master.cpu_s() + slave.cpu_s() - before - held.pop("producer_s")
    with scratch(base) as place, pair(OURS, place) as (master, slave):
        slave.tell("behind", int(rate * args.seconds), rate)
        master.ask("due", rate, args.seconds, how)
        behind = slave.answer()
    return {**held, **found, **behind, "cores_beside": round(beside * held["held_per_s"] / max(found["messages"], 1), 3)}


def put(base: Path, args: Any) -> list[Row]:
    """As bench/load/embedded.py compares: two stores side by side, rounds in turns, processor time of the thread that puts."""
    rounds, count = (2, 100) if args.quick else (30, 10_000)
    options: Any = {"segment_size_bytes": 256 << 20, "write_path": "pool"}
    rows = []
    with scratch(base) as place, MessageStore.open(place / "alone", **options) as alone, \
            MessageStore.open(place / "master", ha_listen="127.0.0.1:0", **options) as master:
        for store in (alone, master):
            seconds(store, count)
        rows.append({"case": "put", "subject": "nobody", **compare(alone, master, rounds, count)})
        with side(OURS, "slave", place / "slave", segment_size_bytes=256 << 20) as slave:
            slave.ask("follow", master.replication().address)
            while not master.replicas() or master.replicas()[0].offset < master.max_log_offset:
                time.sleep(0.001)
            rows.append({"case": "put", "subject": "slave", **compare(alone, master, rounds, count)})
    return rows


def single(base: Path, args: Any) -> list[Row]:
    count = 50 if args.quick else 5000
    with scratch(base) as place:
        with side(OURS, "master", place / "alone") as alone:
            plain = alone.ask("single", count)
        with pair(OURS, place, role="sync_master") as (master, _):
            before = master.ask("window", 1, 0.01)["end"]
            found = master.ask("single", count)
            size = (master.ask("window", 1, 0)["end"] - before) // (count + 200)
        trip = json.loads(subprocess.check_output([compiled(base, "bare_socket"), "trip", str(count), str(size + HEAD)]))
    bare = trip["p50_us"] + plain["p50_us"]
    return [{"case": "single", "subject": OURS, **found, "put_p50_us": plain["p50_us"], "trip_p50_us": trip["p50_us"],
             "ratio": round(found["p50_us"] / bare, 3)}]


def window(subject: str, base: Path, args: Any) -> list[Row]:
    options: dict[str, object] = {"write_path": "pool", "role": "sync_master"}
    if subject != OURS:
        options = {"brokerRole": "SYNC_MASTER"} | ({"inSyncReplicas": 2} if subject == "rocketmq-5.x" else {})
    with scratch(base) as place, pair(subject, place, **options) as (master, slave), \
            Lent(int(WINDOW_MIB * args.seconds)) as memory:
        master.ask("window", WINDOW, args.warm)
        memory.give_back()
        before = master.cpu_s(), slave.cpu_s()
        found = master.ask("window", WINDOW, args.seconds)
        slave.ask("reached", found["end"])
        cpu = master.cpu_s() - before[0], slave.cpu_s() - before[1]
    return [{"case": "window", "subject": subject, **found, "master_cpu_s": round(cpu[0], 3), "slave_cpu_s": round(cpu[1], 3)}]


def window_bare(base: Path, args: Any) -> list[Row]:
    lent = int(WINDOW_MIB * args.seconds)
    with scratch(base) as place:
        with side(OURS, "master", place / "alone", write_path="pool") as alone, Lent(lent) as memory:
            alone.ask("window", WINDOW, args.warm)
            memory.give_back()
            before = alone.cpu_s()
            found = alone.ask("window", WINDOW, args.seconds)
            cpu = alone.cpu_s() - before
        Lent(lent).give_back()
        pair = _bare_pair(base, place, "window", args.seconds, WINDOW, found["producer_ns"])
    return [{"case": "window", "subject": BARE, **found, "master_cpu_s": round(cpu, 3)},
            {"case": "window", "subject": PAIR, **pair}]


def _bare_pair(base: Path, place: Path, *words: object) -> Row:
    what, *numbers = map(str, words)
    found: Row = json.loads(subprocess.check_output([compiled(base, "bare_pair"), what, str(place), *numbers]))
    return found


def catch_up(subject: str, base: Path, args: Any) -> list[Row]:
    with scratch(base) as place, side(subject, "master", place / "master") as master, \
            side(subject, "slave", place / "slave") as slave:
        end = int(master.ask("fill", args.mib)["end"])
        begin = int(end * COUNTED)
        Lent(2 * args.mib).give_back()
        slave.ask("follow", master.address)
        slave.ask("reached", begin)
        before, begun = (master.cpu_s(), slave.cpu_s()), time.perf_counter()
        slave.ask("reached", end)
        took = time.perf_counter() - begun
        slave.ask("dispatched")
        cpu = master.cpu_s() - before[0], slave.cpu_s() - before[1]
        mib = (end - begin) / (1 << 20)
        row = {"case": "catch_up", "subject": subject, "mib_per_s": round(mib / took, 1), "mib": round(mib, 1),
               "master_cpu_us_per_mib": round(cpu[0] * 1e6 / mib, 1), "slave_cpu_us_per_mib": round(cpu[1] * 1e6 / mib, 1),
               "cpu_us_per_mib": round(sum(cpu) * 1e6 / mib, 1)}
        if subject != OURS:
            return [row]
        log = min((place / "master" / "commitlog").iterdir())
        return [row, *({"case": "catch_up", "subject": name, **_copied(base, log, to, args.mib)}
                       for name, to in ((BARE, place / "copy"), ("bare, not stored", "-")))]


def _copied(base: Path, log: Path, to: object, mib: int) -> Row:
    Lent(2 * mib).give_back()
    found: Row = json.loads(subprocess.check_output([compiled(base, "bare_socket"), "copy", str(log), str(to), str(mib)]))
    return found


def catch_up_puts(base: Path, args: Any) -> list[Row]:
    puts = 100 if args.quick else ROUND
    with scratch(base) as place, side(OURS, "master", place / "master", write_path="pool") as master, \
            side(OURS, "slave", place / "slave") as slave:
        master.ask("fill", args.mib)
        master.ask("rounds", 2, puts, PAUSE_S)
        Lent(2 * args.mib).give_back()
        without = master.ask("rounds", 2 if args.quick else 20, puts, PAUSE_S)
        slave.ask("follow", master.address)
        beside = master.ask("rounds_until_followed", puts, PAUSE_S)
    row = {"case": "catch_up_puts", "subject": OURS, "with": beside, "without": without}
    if beside["rounds"]:
        row |= {f"{kind}_ratio": round(beside[f"{kind}_ns"] / without[f"{kind}_ns"], 3) for kind in ("wall", "cpu")}
    return [row]


def _works(base: Path, args: Any) -> dict[tuple[str, str], Callable[[], list[Row]]]:
    """What to measure, by case and subject, in the order of a repetition."""
    alone = {"lag": lag, "put": put, "single": single, "catch_up_puts": catch_up_puts}
    beside = {"window": window, "catch_up": catch_up}
    works: dict[tuple[str, str], Callable[[], list[Row]]] = {
        (name, OURS): partial(work, base, args) for name, work in alone.items()}
    works["window", BARE] = partial(window_bare, base, args)
    return works | {(name, subject): partial(work, subject, base, args) for name, work in beside.items()
                    for subject in (OURS, *REAL)}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, seconds=2.5, warm=4.0, mib=600, reps=2, only="")
    p.add_argument("--no-real", action="store_true", help="do not start the real pair")
    args = p.parse_args(argv)
    if args.quick:
        args.seconds, args.warm, args.mib, args.reps = 0.3, 0.2, 8, 1
    if args.mib > MIB_MAX:
        p.error(f"--mib {args.mib}: at most {MIB_MAX}, because an empty slave begins with the last file of the log")
    rows: list[Row] = []
    missing: dict[tuple[str, str], str] = {}
    with scratch(args.dir) as base:
        works = {key: work for key, work in _works(base, args).items()
                 if (not args.only or key[0] in args.only.split(",")) and (key[1] not in REAL or not args.no_real)}
        turns = [key for key in works for _ in range(1 if args.quick else OFTEN.get(key, 1))]
        for _ in range(args.reps):
            for key in turns:
                if key in missing:
                    continue
                if not args.quick:
                    settle(2)
                try:
                    found = repeated(works[key], again=not args.quick)
                except NotHere as why:
                    missing[key] = str(why)
                    continue
                for row in found:
                    print(json.dumps(row), flush=True)
                rows += found
    rows += [{"case": case, "subject": subject, "missing": why} for (case, subject), why in missing.items()]
    keep(args, rows, lambda r: (r["case"], r["subject"]))


if __name__ == "__main__":
    main()
