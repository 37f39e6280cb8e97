"""What one store has promised, whatever feature promised it, and what it must show for that at any time.

A promise is a message. It is made when a call has returned. What a crash may take back may be there,
and need not. Each body begins with a number of its own, so a copy tells whose it is. The rules, for each kind:

- put, many, batch, inner (an inner batch), light, keyed (compaction): at its queue offset, once, byte for byte;
- delay: once its time is over, in its topic, once or more where a crash was in between;
- timer: once, never before the furthest time of the clock, and never where a recall was acknowledged;
- half: once where a commit was acknowledged, never where a rollback was, and not both;
- work: handled, or a dead letter where its handler fails it each time.

A copy that delete_topics took has been there. What cleaning took is owed no more.
"""
import collections
from dataclasses import dataclass, field
from typing import Any

from rmq_store import MessageStore, errors

PLAIN = ("put", "inner", "light", "keyed", "work")
LATER = ("delay", "timer", "half")
TOPICS = ("A", "B")                 # of everything that may be deleted
OWN = {"inner": "I", "light": "L", "keyed": "C", "work": "W"}
GROUP = "G"
DEAD, GIVEN_UP = f"%DLQ%{GROUP}", "TRANS_CHECK_MAX_TIME_TOPIC"
LIGHTS = ("q0", "q1", "q2")


class Wrong(AssertionError):
    """What the store shows is not what it promised."""


@dataclass
class Promise:
    """One message. need: it must be there, or come, or be handled. may: it may be there. durable: no crash takes it back."""

    number: int
    kind: str
    topic: str
    queue_id: int
    body: bytes
    need: bool = False
    may: bool = True
    durable: bool = False
    place: int = -1                 # log offset, and queue offset, that its put returned
    offset: int = -1
    key: str = ""
    lights: tuple[str, ...] = ()
    due: int = 0
    id: str = ""                    # of a transaction
    state: str = "pending"          # of a transaction; "unsure": a crash was in the call that decides
    decided: bool = False           # durably
    recalled: str = ""              # "yes", "maybe"
    gone: int = 0                   # copies that delete_topics took
    came: bool = False
    again: bool = False             # a crash allows a delayed message to come more than once
    fails: bool = False             # the handler fails it each time
    wish: str = "unknown"           # what its producer answers to a check


@dataclass
class Ledger:
    """All of them, by number."""

    all: dict[int, Promise] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[Promise]:
        return [p for p in self.all.values() if p.kind in kinds]

    # ---- what happened to all of them

    def made_durable(self) -> None:
        for p in self.all.values():
            p.durable = p.durable or p.need or p.place >= 0
            p.decided = p.decided or p.state in ("commit", "rollback")

    def crashed(self, lossy: bool) -> None:
        """lossy: what was not durable may be lost; else all that was acknowledged is there."""
        for p in self.all.values():
            p.again = True
            if not lossy:
                continue
            if not p.durable:
                p.need = False
            if p.state in ("commit", "rollback") and not p.decided:
                p.state, p.need = "unsure", False
            if p.recalled == "yes" and not p.decided:
                p.recalled = "maybe"

    def deleted(self, topic: str, there: "collections.Counter[int]", sure: bool) -> None:
        """delete_topics has removed it. sure: the call has returned."""
        for p in self.all.values():
            if p.topic == topic and p.kind == "put":
                p.need = False
                p.may = p.may and not sure
            elif p.topic == topic and there[p.number]:
                p.came, p.need = True, False
                p.gone += there[p.number] if sure else 0

    def cleaned(self, begins: int) -> None:
        """The log begins there now. What waits in what is gone, and what came, is owed no more."""
        for p in self.all.values():
            if p.kind != "keyed" and (p.place < begins or p.came or p.kind in ("half", "timer", "work")):
                p.need = False

    def followed(self, begins: int) -> None:
        """A slave is the master now, whose log begins there: a new slave begins with the newest file. The log does not say that
        a topic was deleted. A slave removes a queue when it begins anew."""
        for p in self.all.values():
            p.again, p.may, p.gone = True, True, 0
            if p.place < begins:
                p.need = False

    # ---- what must be there

    def judge(self, store: MessageStore, now: int, far: int, *, late: bool, end: bool = False) -> None:
        """late: all that is due has been delivered. end: and all that waits has been handled."""
        found = Found(store)
        self._judge_places(found)
        self._judge_later(found, now, far, late)
        self._judge_light(found, store)
        self._judge_keyed(found, store)
        self._judge_dead(found, end)
        if end:
            self._judge_index(store)

    def _judge_places(self, found: "Found") -> None:
        for copy in found.copies:
            p = self.all.get(copy.number)
            if p is None or copy.body != p.body:
                raise Wrong(f"{copy} is nothing that anybody put")
            if copy.topic in (DEAD, GIVEN_UP):
                continue
            if copy.topic != p.topic or copy.queue_id != p.queue_id:
                raise Wrong(f"{copy} is in {copy.topic}/{copy.queue_id}, and was put into {p.topic}/{p.queue_id}")
            if p.kind in PLAIN and not p.may:
                raise Wrong(f"{copy} is back, and its topic was deleted")
            if p.kind in PLAIN and p.offset >= 0 and copy.offset != p.offset:
                raise Wrong(f"{copy} has queue offset {copy.offset}, and its put was told {p.offset}")
        for p in self.all.values():
            count = found.count(p.topic, p.number)
            if p.kind in PLAIN and count > 1:
                raise Wrong(f"{p.kind} {p.number} is there {count} times")
            if p.kind in PLAIN and p.kind != "keyed" and p.need and p.place >= found.begins and not count:
                raise Wrong(f"{p.kind} {p.number} is not there, and was acknowledged at {p.place} "
                            f"({p.topic}/{p.queue_id} {p.offset}, durable: {p.durable})")

    def _judge_later(self, found: "Found", now: int, far: int, late: bool) -> None:
        for p in self.of(*LATER):
            count = found.count(p.topic, p.number)
            if count + p.gone > 1 and not (p.kind == "delay" and p.again):
                raise Wrong(f"{p.kind} {p.number} came {count + p.gone} times")
            p.came = p.came or count > 0
            if count and p.kind == "timer" and p.recalled == "yes":
                raise Wrong(f"timer {p.number} was taken back, and came")
            if count and p.kind == "timer" and p.due > far:
                raise Wrong(f"timer {p.number} came before its time")
            if count and p.kind == "half" and p.state not in ("commit", "unsure"):
                raise Wrong(f"transaction {p.number} is {p.state}, and its message is there")
            if not (late and p.need and not count):
                continue
            if p.kind == "half" or (p.due < now and p.recalled == ""):
                raise Wrong(f"{p.kind} {p.number} did not come (due {p.due - now}, {p.state}, durable: {p.durable}, "
                            f"acknowledged at {p.place}, the log begins at {found.begins})")

    def _judge_light(self, found: "Found", store: MessageStore) -> None:
        there = sorted((copy for copy in found.copies if copy.topic == "L"), key=lambda copy: copy.place)
        for name in LIGHTS:
            want = [c.number for c in there if name in self.all[c.number].lights and c.place >= found.begins]
            have = [number_of(m.body) for m in store.scan(f"%LMQ%{name}", 0) if m.offset >= found.begins]
            if want != have:
                raise Wrong(f"light queue {name} has {have}, and the log has {want}")

    def _judge_keyed(self, found: "Found", store: MessageStore) -> None:
        table = store.table("C")
        for key in {p.key for p in self.of("keyed")}:
            line = [p for p in self.of("keyed") if p.key == key]
            last = max((i for i, p in enumerate(line) if p.need), default=-1)
            newest = table.get(key)
            if newest is None and last >= 0:
                raise Wrong(f"the table lacks {key}, whose newest value is {line[last].number}")
            if newest is not None and number_of(newest.body) not in [p.number for p in line[max(last, 0):]]:
                raise Wrong(f"the table has {number_of(newest.body)} for {key}, whose newest value is {line[last].number}")

    def _judge_dead(self, found: "Found", end: bool) -> None:
        for p in self.of("work"):
            dead = found.count(DEAD, p.number)
            if dead and not p.fails:
                raise Wrong(f"work {p.number} is a dead letter, and its handler never failed it")
            if dead > 1 and not p.again:
                raise Wrong(f"work {p.number} is {dead} dead letters")
            if end and p.need and p.fails and not dead:
                raise Wrong(f"work {p.number} failed each time, and is no dead letter")
            if end and p.need and not p.fails and not p.came:
                raise Wrong(f"work {p.number} was never handled")

    def _judge_index(self, store: MessageStore) -> None:
        for p in self.of("put"):
            if p.need and p.key and p.place >= store.min_log_offset:
                have = [number_of(m.body) for m in store.query_key(p.topic, p.key, max_count=64)]
                if p.number not in have:
                    raise Wrong(f"the index has {have} for {p.key}, and not {p.number}")


def number_of(body: Any) -> int:
    return int(bytes(body).partition(b":")[0])


@dataclass(frozen=True)
class Copy:
    topic: str
    queue_id: int
    offset: int
    place: int
    number: int
    body: bytes

    def __str__(self) -> str:
        return f"{self.number} ({self.topic}/{self.queue_id} {self.offset}, log offset {self.place})"


class Found:
    """What a store shows in the topics of the model."""

    def __init__(self, store: MessageStore) -> None:
        self.begins = store.min_log_offset
        self.copies: list[Copy] = []
        for topic in (*TOPICS, *OWN.values(), DEAD, GIVEN_UP):
            for queue_id in store.queues(topic):
                try:
                    self.copies += [Copy(topic, queue_id, m.queue_offset, m.offset, number_of(m.body), bytes(m.body))
                                    for m in store.scan(topic, queue_id)]
                except errors.ArgumentIllegal:      # no such topic any more
                    continue
        self._counts = collections.Counter((copy.topic, copy.number) for copy in self.copies)

    def count(self, topic: str, number: int) -> int:
        return self._counts[topic, number]
