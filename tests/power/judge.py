"""What must hold of a store after a power cut (docs/is-my-message-safe.md): it opens; what was told durable is there, at its
place and as it was put; queues have no hole; each producer's messages end somewhere and nothing in their middle is gone;
nothing is there that was not put; offsets are within the log; puts work, and the next open finds all of it.

Runs in a process of its own that is killed when it has answered, on a file system that was mounted after the cut.
"""
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmq_store import MessageStore, verify
from tests.power.facts import Facts, Place
from tests.power.messages import ADDED, Message, message, who
from tests.power.reading import Found, Queue, read_queues
from tests.power.scenarios import Scenario
from tests.power.workload import GROUP, LIFE, Marks, tell_found

FIRST_AFTER = 50            # lives after a cut have these numbers
PUTS_AFTER = 12
PATIENCE_S = 20.0
SHOWN = 3                   # of each kind of violation


@dataclass
class Judge:
    """One store after one cut. `level` counts the cuts before it."""

    scenario: Scenario
    seed: int
    level: int
    facts: Facts
    root: Path
    marks: Path | None
    random: random.Random
    wrong: list[str] = field(default_factory=list)
    where: dict[tuple[int, int], list[Place]] = field(default_factory=dict)         # what queues lead to
    logged: dict[tuple[int, int], list[Place]] = field(default_factory=dict)        # what the log holds

    def run(self) -> list[str]:
        """All violations."""
        if self.random.random() < 0.2:
            self.read_only()
        store = MessageStore.open(self.root, **self.scenario.options)
        self.opened(store)
        after = self.put_after(store)
        if self.random.random() < 0.7:      # else this process is killed, and what it leaves is cut as it is
            store.close()
            self.closed(after)
        return self.wrong

    def complain(self, what: str, those: list[Any]) -> None:
        if those:
            more = f" and {len(those) - SHOWN} more" if len(those) > SHOWN else ""
            self.wrong.append(f"{what}: {', '.join(map(str, those[:SHOWN]))}{more}")

    def read_only(self) -> None:
        try:
            with MessageStore.open(self.root, readonly=True, **self.scenario.options) as store:
                read_queues(store)
        except Exception as error:
            self.wrong.append(f"readonly open: {type(error).__name__}: {error}")

    def opened(self, store: MessageStore) -> None:
        if "delay" in self.scenario.does:
            end = time.monotonic() + PATIENCE_S
            while any(level.waiting for level in store.delay_levels()) and time.monotonic() < end:
                time.sleep(0.02)
            store.wait_dispatched(PATIENCE_S)
        if self.marks is not None:
            tell_found(store, Marks(self.marks))
        if store.max_log_offset < self.facts.end:
            self.wrong.append(f"the log ends at {store.max_log_offset}, and was durable to {self.facts.end}")
        if store.min_log_offset > self.facts.clean_to:
            self.wrong.append(f"the log begins at {store.min_log_offset}, and was cleaned to {self.facts.clean_to} at most")
        queues, holes = read_queues(store)
        self.complain("queue", holes)
        self.contents(queues)
        self.log(store)
        self.told_durable(store.min_log_offset)
        self.producers()
        self.keys(store)
        if "consumer" in self.scenario.does:
            self.consumer(store)

    def contents(self, queues: dict[Queue, list[Found]]) -> None:
        """Each message that a queue gives is one that was put, as it was put."""
        invented, changed = [], []
        for (topic, queue_id), messages in queues.items():
            if topic.startswith(("SCHEDULE", "%")):
                continue
            for m in messages:
                known = who(m.body)
                if known is None:
                    invented.append(f"{topic}/{queue_id}[{m.queue_offset}] {m.body[:20]!r}")
                    continue
                if why := _difference(m, self.made(*known)):
                    changed.append(f"{known} in {topic}/{queue_id}[{m.queue_offset}] at {m.offset}: {why}")
                self.where.setdefault(known, []).append(Place(topic, queue_id, m.queue_offset, m.offset))
        self.complain("never put", invented)
        self.complain("not as it was put", changed)

    def made(self, producer: int, number: int) -> Message:
        return message(self.seed, producer, number, self.scenario.body_max)

    def log(self, store: MessageStore) -> None:
        """What the log holds; and queues lead to all of it."""
        for m in store.scan():
            if (known := who(bytes(m.body))) is not None and not m.topic.startswith("SCHEDULE"):
                self.logged.setdefault(known, []).append(Place(m.topic, m.queue_id, m.queue_offset, m.offset))
        self.complain("in the log, and not in its queue", [
            f"{key} {place}" for key, places in self.logged.items() for place in places
            if place.topic not in self.facts.deleted and place not in self.where.get(key, [])])

    def told_durable(self, begin: int) -> None:
        """begin: of the log."""
        told = [(key, place) for key, place in self.facts.acknowledged.items()
                if place.offset >= begin and place.topic not in self.facts.deleted]
        self.complain("told durable, and not in the log", [
            f"{key} {place}, found {self.logged.get(key)}" for key, place in told if place not in self.logged.get(key, [])])
        self.complain("told durable, and not in its queue", [
            f"{key} {place}, found {self.where.get(key)}" for key, place in told if place not in self.where.get(key, [])])
        self.complain("delayed and never delivered", [key for key in self.facts.delayed if key not in self.where])

    def producers(self) -> None:
        """What is lost is the end of the log; so of each producer the last messages, and where it was cleaned the first."""
        if "delay" in self.scenario.does:
            return
        holes: list[str] = []
        numbers: dict[int, list[int]] = {}
        for producer, number in self.logged:
            numbers.setdefault(producer, []).append(number)
        for producer, those in numbers.items():
            if len(those) != max(those) - min(those) + 1:
                holes.append(f"of {producer} within {min(those)} to {max(those)}: {sorted(_absent(those))[:SHOWN]}")
            if min(those) and not self.facts.clean_to:
                holes.append(f"of {producer} before {min(those)}")
        self.complain("missing in the middle", holes)
        self.complain("there twice", [key for key, places in self.logged.items() if len(places) > 1])

    def keys(self, store: MessageStore) -> None:
        """Some that were told durable are found by key."""
        those = sorted(key for key, place in self.facts.acknowledged.items() if place in self.where.get(key, []))
        for key in self.random.sample(those, min(8, len(those))):
            place, known = self.facts.acknowledged[key], self.made(*key)
            if known.keys and place.offset not in [m.offset for m in store.query_key(place.topic, known.keys)]:
                self.wrong.append(f"{key} at {place} is not found by its key")

    def consumer(self, store: MessageStore) -> None:
        for (topic, queue_id), handed in self.facts.handed.items():
            offset = store.offsets.query(GROUP, topic, queue_id)
            committed = self.facts.committed.get((topic, queue_id), 0)
            if not (committed <= max(offset, 0) <= min(handed, store.max_offset(topic, queue_id))):
                self.wrong.append(f"offset of {topic}/{queue_id} is {offset}; committed {committed}, handed out to {handed}, "
                                  f"the queue ends at {store.max_offset(topic, queue_id)}")

    def put_after(self, store: MessageStore) -> dict[tuple[int, int], Place]:
        """Puts a few messages that must stay, and looks for them."""
        told, producer, put = Marks(self.marks), LIFE * (FIRST_AFTER + self.level), {}
        for number in range(PUTS_AFTER):
            m = self.made(producer, number)
            done = store.put(m.topic, m.body, queue_id=m.queue_id, wait=True, **m.arguments())
            if done.status.name != "PUT_OK":
                self.wrong.append(f"a put after the cut is {done.status.name}")
                continue
            put[producer, number] = Place(m.topic, m.queue_id, done.queue_offset, done.offset)
            told.durable([(producer, number, *put[producer, number])])
        if not store.wait_dispatched(PATIENCE_S):
            self.wrong.append("what was put after the cut is not dispatched")
        for key, place in put.items():
            got = store.get(place.topic, place.queue_id, place.queue_offset, 1)
            if len(got) != 1 or bytes(got[0].body) != self.made(*key).body:
                self.wrong.append(f"{key}, put after the cut, is not at {place}")
        return put

    def closed(self, put: dict[tuple[int, int], Place]) -> None:
        """The store was closed: verify finds nothing, and the next open gives the same."""
        if self.scenario.image_bytes < 1 << 30:
            sizes = {name: value for name, value in self.scenario.options.items() if name != "profile"}
            found = [str(f) for f in verify(self.root, **sizes) if f.severity != "note"]
            self.complain("verify", found)
        with MessageStore.open(self.root, readonly=True, **self.scenario.options) as store:
            queues, holes = read_queues(store)
            self.complain("queue, opened again", holes)
            there = {(who(m.body), Place(*queue, m.queue_offset, m.offset))
                     for queue, messages in queues.items() for m in messages}
            gone = [key for key, places in self.where.items() for place in places if (key, place) not in there]
            self.complain("gone when opened again", gone + [key for key, place in put.items() if (key, place) not in there])


def _absent(numbers: list[int]) -> set[int]:
    return set(range(min(numbers), max(numbers))) - set(numbers)


def _difference(found: Found, put: Message) -> str:
    """How what a reader got differs from what was put, empty where it does not."""
    if found.body != put.body:
        return f"the body: {len(found.body)} bytes of {len(put.body)}"
    if not found.crc_ok:
        return "the checksum of the body"
    have = {name: value for name, value in found.properties.items() if name not in ADDED}
    if have != put.stored:
        return f"the properties: {have}, put with {put.stored}"
    return ""


def judge(scenario: Scenario, seed: int, level: int, facts: Facts, root: Path, marks: Path | None, chance: int) -> list[str]:
    """All that is wrong with the store in `root`."""
    return Judge(scenario, seed, level, facts, root, marks, random.Random(chance)).run()
