"""Streams and exports against a model of rows: whatever is done to stores, brokers, checkpoints and processes, exactly the rows
that must come do come, once, or somebody refuses and says so.

The model knows what was put where, what was deleted or cut, and how far each reader is; it says which rows lie between two
positions, where a broker begins that nobody has read, and which calls must be refused. Batches are planned, run and committed
as Spark does it, without a JVM; a restart is a new reader that knows the checkpoint's positions only, and runs a batch again
that was planned and not committed. Exports are killed in children.
How deep: 50 steps each in CI, 2,000 in the slow suite. A failure names its seed and last steps.
"""
import importlib
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.spark.offsets import places
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.schema import columns_of
from tests.spark.test_export import export, killed_at, read, verify

FILE = 16384
SMALL = {"segment_size_bytes": FILE, "index_slots": 100, "index_entries_max": 1000}
pytestmark = [pytest.mark.usefixtures("tasks"), pytest.mark.untraced,
              pytest.mark.filterwarnings("ignore:topic .* has no queue")]


@dataclass(frozen=True)
class Row:
    id: int
    topic: str
    offset: int
    size: int
    time: int


@dataclass
class Broker:
    """One store: where it is, what is in its log, and whether a power cut left a hole that its next opening cuts at."""

    name: str
    root: Path
    rows: list[Row] = field(default_factory=list)
    first: int = 0
    end: int = 0
    away: bool = False
    cut: Row | None = None

    def between(self, begin: int, end: int, topic: str | None = None, since: int = 0) -> list[int]:
        return [r.id for r in self.rows if begin <= r.offset < end and topic in (None, r.topic) and r.time >= since]


@dataclass
class Out:
    """A directory of exports: what chose its rows, how far each log is in it, and the rows that must be there."""

    path: Path
    topic: str | None
    positions: dict[str, int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)


class Model:
    """Everything that happens, and what must come of it."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.random, self.said = place, random.Random(seed), [f"seed {seed}"]
        self.brokers: list[Broker] = []
        self.ids = 0
        self.outs = 0
        for name in "ab":
            self.brokers.append(Broker(name, self.place / name))
            self.put(self.brokers[-1])
        self.new_checkpoint()
        self.new_out()

    # ---- stores

    @property
    def here(self) -> list[Broker]:
        return [b for b in self.brokers if not b.away]

    @property
    def path(self) -> str:
        return f"{self.place}/?"

    def new_store(self) -> None:
        if len(self.brokers) < 4:
            name = "abcd"[len(self.brokers)]
            self.brokers.append(Broker(name, self.place / name))
            self.put(self.brokers[-1])
            self.restart()                  # a reader knows the brokers that there were when it began

    def put(self, broker: Broker | None = None) -> None:
        broker = broker or self.random.choice(self.here)
        with MessageStore.open(broker.root, **SMALL) as store:
            for _ in range(self.random.choice((1, 2, 5, 30))):
                topic = self.random.choice("AB")
                put = store.put(topic, b"%06d" % self.ids + b"x" * self.random.choice((0, 50, 900, 5000)), queue_id=0)
                assert broker.cut is None or put.offset in (broker.end, broker.end - broker.end % FILE + FILE)
                broker.cut = None
                broker.rows.append(Row(self.ids, topic, put.offset, put.size, put.store_timestamp))
                broker.end = put.offset + put.size
                self.ids += 1

    def clean(self) -> None:
        """Retention: the oldest file goes, never the newest."""
        broker = self.random.choice(self.here)
        files = sorted((broker.root / "commitlog").iterdir())
        if broker.cut is None and len(files) > 1 and broker.rows and int(files[1].name) <= broker.rows[-1].offset:
            files[0].unlink()
            broker.first = int(files[1].name)
            broker.rows = [r for r in broker.rows if r.offset >= broker.first]

    def power_cut(self) -> None:
        """A record was never written back, those behind it were. None of it was read yet: what was, is another matter."""
        broker = self.random.choice(self.here)
        read_to = max([at.get(broker.name, 0) for at in (self.at, self.planned or {}, *(o.positions for o in [self.out]))])
        newest = broker.end - broker.end % FILE
        lost = [r for r in broker.rows[:-1] if r.offset >= read_to and r.offset > newest]
        if broker.cut is None and lost:
            row = self.random.choice(lost)
            with open(broker.root / "commitlog" / f"{newest:020d}", "r+b") as file:
                file.seek(row.offset - newest)
                file.write(bytes(row.size))
            broker.cut, broker.end = row, row.offset
            broker.rows = [r for r in broker.rows if r.offset < row.offset]
            self.restart()                  # readers had their power cut, too

    def go_away(self) -> None:
        if len(self.here) > 1:
            broker = self.random.choice(self.here)
            broker.away = True
            broker.root = broker.root.rename(self.place / f"away-{broker.name}")
            self.restart()

    def come_back(self) -> None:
        for broker in self.brokers:
            if broker.away:
                broker.away = False
                broker.root = broker.root.rename(self.place / broker.name)
        self.restart()

    # ---- the stream

    def new_checkpoint(self) -> None:
        if any(b.cut for b in self.here):
            return                          # read by a batch only when it is recovered
        self.topic = self.random.choice((None, None, "A"))
        self.new_brokers = self.random.choice((None, "earliest", "latest"))
        start = self.random.choice(("earliest", "latest", "timestamp"))
        self.starting = {"startingOffsets": start}
        times = [r.time for b in self.here for r in b.rows]
        moment = self.random.choice(times) if times else 0
        if start == "timestamp":
            self.starting = {"startingTimestamp": moment}
        self.moment = moment if start == "timestamp" else 0
        self.planned: dict[str, int] | None = None
        self.at: dict[str, int] = {}
        self.restart()
        self.at = self.reader.initialOffset()
        for b in self.here:
            rows = {"earliest": b.rows, "latest": [], "timestamp": [r for r in b.rows if r.time >= moment]}[start]
            begin = self.at[b.name]
            assert b.between(begin, b.end) == [r.id for r in rows], (b.name, begin)
        assert set(places(self.at)) == {b.name for b in self.here}

    def restart(self, path: object = None, **more: str) -> None:
        """Another process, which knows the checkpoint."""
        from rmq_store.spark.stream import StoreStreamReader

        limits = self.random.choice(({}, {"maxOffsetsPerTrigger": self.random.randint(1, 30)},
                                     {"maxBytesPerTrigger": self.random.randint(1, 30_000)}))
        given = {"path": path or self.path, "columns": "brokerName,body", "splitSize": self.random.choice((500, 1 << 20)),
                 "subscribe": self.topic, "newBrokers": self.new_brokers, **self.starting, **limits, **more}
        self.lossy = "failOnDataLoss" in more
        options = ReadOptions.parse(given, stream=True)
        self.reader = StoreStreamReader(options, columns_of(options))

    def _latest(self) -> dict[str, int]:
        end: dict[str, int] = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        return end

    def plan(self) -> None:
        if self.planned is not None:
            return
        known = [b for b in self.here if b.name in self.at]
        new = [b for b in self.here if b.name not in self.at]
        if new and len(known) < len(places(self.at)) and self.new_brokers is None:
            with pytest.raises(ConfigError, match=r"while .* is away"):
                self._latest()
            return
        if any(self.at[b.name] < b.first for b in known) and not self.lossy:
            with pytest.raises(CorruptionError, match="were deleted before they were read"):
                self._latest()
            self.restart(failOnDataLoss="false")
        end = self._latest()
        assert set(places(end)) == set(places(self.at)) | {b.name for b in new}
        for b in self.brokers:
            if b in new:
                begin = b.end if self.new_brokers == "latest" else b.first
                assert b.between(end[b.name], b.end) == b.between(begin, b.end)
            elif b in known:
                assert max(self.at[b.name], b.first) <= end[b.name] <= max(b.end, b.first)
            elif b.name in self.at:
                assert end[b.name] == self.at[b.name]
        if end is self.at:
            assert all(not b.between(self.at[b.name], b.end) for b in known)
        else:
            self.planned = end

    def run(self, commit: bool = True) -> None:
        """The planned batch; without `commit` Spark died behind it, and the next process runs it again."""
        if self.planned is None:
            return
        missing = [b for b in self.brokers if b.away and self.planned.get(b.name) != self.at.get(b.name)]
        lost = [b for b in self.here if b.name in self.at and b.name in self.planned
                and self.at[b.name] < min(b.first, self.planned[b.name])]
        if missing:
            with pytest.raises(ConfigError, match="is not in option path"):
                self.reader.partitions(self.at, self.planned)
            return
        if lost:
            self.restart()
            with pytest.raises(CorruptionError, match="were deleted before they were read"):
                self.reader.partitions(self.at, self.planned)
            self.restart(failOnDataLoss="false")
        found: dict[str, list[int]] = {b.name: [] for b in self.brokers}
        for part in self.reader.partitions(self.at, self.planned):
            for batch in self.reader.read(part):
                for row in batch.to_pylist():
                    found[row["brokerName"]].append(int(row["body"][:6]))
        for b in self.here:
            if b.name in self.planned:
                begin = self.at.get(b.name, self.planned[b.name])
                assert found[b.name] == b.between(begin, self.planned[b.name], self.topic, self.moment), b.name
            else:
                assert found[b.name] == [], b.name
        if commit:
            self.at, self.planned = self.planned, None
        else:
            self.restart()

    def drain(self) -> None:
        """To the end: every row that is there has come then."""
        for i in range(2000):
            if i % 20 == 19:
                self.restart()              # with another limit: one row a batch would take long
            self.run()
            self.plan()
            if self.planned is None:
                return
            before = self.at
            self.run()
            if self.at is before:
                return                      # a broker of the batch is away
        raise AssertionError("a stream that never comes to its end")

    def other_name(self) -> None:
        """The directory of a broker gets another name for one restart: nothing of it is read again."""
        self.drain()
        broker = self.random.choice(self.here)
        if self.planned is not None or broker.name not in self.at or any(b.name not in self.at for b in self.here):
            return
        if any(self.at[b.name] < b.first for b in self.here):
            return
        broker.root = broker.root.rename(self.place / "z")
        was, self.new_brokers = self.new_brokers, None
        self.restart()
        with pytest.raises(ConfigError, match="was not read before, and"):
            self._latest()
        self.restart({b.name: str(b.root) for b in self.here})
        assert self._latest() is self.at
        broker.root, self.new_brokers = broker.root.rename(self.place / broker.name), was
        self.restart()

    # ---- exports

    def new_out(self) -> None:
        self.outs += 1
        self.out = Out(self.place / f"out-{self.outs}", self.random.choice((None, None, "A")))

    def export(self, kill: bool = False) -> None:
        out = self.out
        bound = {} if kill else self._bound()
        more = {} if out.topic is None else {"subscribe": out.topic}
        new = [b for b in self.here if b.name not in out.positions]
        if new and set(out.positions) - {b.name for b in self.here}:
            with pytest.raises(ConfigError, match=r"while .* is away"):
                export(self.path, out.path, **more)
            more["newBrokers"] = "earliest"
        if any(out.positions.get(b.name, b.first) < b.first for b in self.here):
            with pytest.raises(CorruptionError, match="were deleted before they were read"):
                export(self.path, out.path, **more)
            more["failOnDataLoss"] = "false"
        due = list(out.rows)
        for b in self.here:
            begin = max(out.positions.get(b.name, b.first), b.first)
            due += b.between(begin, max(begin, self._bounded(b, begin, bound)), out.topic)
        if kill:
            killed_at(self.random.randint(0, 24), lambda: export(self.path, out.path, **more))
            found = read(out.path) if out.path.exists() else []
            assert len(found) == len(set(found)) and set(out.rows) <= set(found) <= set(due)
        done = export(self.path, out.path, split_size=self.random.choice((2000, 1 << 20)), **more, **bound)
        out.positions, out.rows = done.positions, due
        assert read(out.path) == sorted(due)

    def _bound(self) -> dict[str, int]:
        rows = [r for b in self.here for r in b.rows]
        if not rows or self.random.random() < 0.5:
            return {}
        row = self.random.choice(rows)
        if len(self.here) == 1 and self.random.random() < 0.5:
            return {"ending_physical_offset": row.offset + self.random.choice((0, 1, row.size - 1))}
        return {"ending_timestamp": row.time + self.random.choice((0, 1))}

    def _bounded(self, b: Broker, begin: int, bound: dict[str, int]) -> int:
        if "ending_physical_offset" in bound:
            return min(b.end, bound["ending_physical_offset"])
        late = [r.offset for r in b.rows if r.offset >= begin and r.time >= bound.get("ending_timestamp", 1 << 62)]
        return late[0] if late else b.end

    def other_options(self) -> None:
        out = self.out
        if out.positions:
            with pytest.raises(ConfigError, match="same options"):
                export(self.path, out.path, newBrokers="earliest", subscribe="B" if out.topic == "A" else "A")
            assert read(out.path) == sorted(out.rows)

    def prove(self) -> None:
        if self.out.positions and not any(b.cut for b in self.here):
            verify(self.out.path, self.path)
        self.new_out()

    # ----

    def run_and_die(self) -> None:
        self.run(commit=False)

    def export_and_die(self) -> None:
        self.export(kill=True)

    def steps(self, count: int) -> None:
        doing = {self.put: 10, self.plan: 6, self.run: 4, self.run_and_die: 3, self.restart: 2, self.drain: 3, self.export: 5,
                 self.export_and_die: 2, self.go_away: 3, self.come_back: 3, self.clean: 3, self.power_cut: 2,
                 self.new_checkpoint: 1, self.other_name: 1, self.other_options: 1, self.prove: 1, self.new_store: 1}
        for what in self.random.choices(list(doing), list(doing.values()), k=count):
            self.said.append(what.__name__)
            try:
                what()
            except BaseException as error:
                error.add_note(", ".join(self.said[:1] + self.said[-20:]))
                raise
        self.come_back()
        self.put()
        self.drain()
        assert self.planned is None
        self.export()


@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_rows_that_must_come(tmp_path, seed):
    Model(tmp_path, seed).steps(50)


@pytest.mark.slow
def test_exactly_the_rows_that_must_come_for_long(tmp_path):
    Model(tmp_path, 1000).steps(2000)


# ---- mistakes that were made once, and that the model has to find

def forget_who_is_away(patch):
    from rmq_store.spark.stream import StoreStreamReader as Reader

    latest = Reader.latestOffset
    patch.setattr(Reader, "latestOffset", lambda self, *given: {
        name: at for name, at in latest(self, *given).items() if name in {p.broker.name for p in self.logs}})


def run_without_who_is_away(patch):
    from rmq_store.spark.stream import StoreStreamReader as Reader

    partitions = Reader.partitions
    patch.setattr(Reader, "partitions", lambda self, start, end: partitions(
        self, start, {name: at for name, at in end.items() if name in {p.broker.name for p in self.logs}}))


def begin_new_ones_at_their_first_record(patch):
    patch.setattr("rmq_store.spark.stream.begin_of_new",
                  lambda logs, known: {p.broker.name: p.first() for p in logs if p.broker.name not in known})


def walk_over_what_was_not_written(patch):
    from rmq_store.spark.positions import LogPositions

    end = LogPositions.end
    patch.setattr(LogPositions, "end", lambda self, over=False: end(self, over=True))


def take_the_logs_end_for_the_exports(patch):
    module = importlib.import_module("rmq_store.spark.jobs.export")
    plan = module._plan

    def planned(options, manifest):
        pieces = plan(options, manifest)
        for broker in options.brokers:
            manifest["positions"][broker.name] = module.LogPositions(broker, options).end()
        return pieces

    patch.setattr(module, "_plan", planned)


def move_files_out_before_they_are_sure_to_count(patch):
    module = importlib.import_module("rmq_store.spark.jobs.export")
    write = module._write_manifest

    def written(work, manifest):
        for file in os.listdir(work):
            os.rename(os.path.join(work, file), os.path.join(os.path.dirname(work), file))
        write(work, manifest)

    patch.setattr(module, "_write_manifest", written)
    patch.setattr(module, "no_strangers", lambda *given: None)


QUICK = [forget_who_is_away, take_the_logs_end_for_the_exports]
PLANTS = [run_without_who_is_away, begin_new_ones_at_their_first_record, walk_over_what_was_not_written,
          move_files_out_before_they_are_sure_to_count]


@pytest.mark.parametrize("plant", [*QUICK, *(pytest.param(plant, marks=pytest.mark.slow) for plant in PLANTS)],
                         ids=lambda plant: plant.__name__)
def test_the_model_finds(tmp_path, monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, CorruptionError)):
        for seed in range(30):
            (tmp_path / str(seed)).mkdir()
            Model(tmp_path / str(seed), seed).steps(50)
