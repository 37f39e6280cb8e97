"""What can happen to a store, as steps: a name, and a number that says how.

A step takes what it chooses from by that number. So a sequence without some of its steps is a sequence, too, and run.py deletes
steps until only those are left that show a fault."""
import copy
import random
from collections.abc import Callable

from rmq_store import errors
from rmq_store.codec.batch import encode_batch
from tests.promises.ledger import LIGHTS, TOPICS, Wrong
from tests.promises.world import World, no_room

KEYS = ("k1", "k2", "k3")
AHEAD = (1, 1, 2, 5, 20, 100, 3000, 1_000_000, 3_000_000)           # slots of 100 ms; the last is longer than 72 h
BACK = (1, 3, 50, 2000, 1_000_000)


# ---- puts

def put(w: World, r: random.Random) -> None:
    key = r.choice(("", *KEYS))
    p = w.new("put", r.choice(TOPICS), r, queue_id=r.randrange(2), key=key)
    w.acknowledged(p, w.attempt(w.store.put, p.topic, p.body, queue_id=p.queue_id, keys=key or None,
                                too_large=len(p.body) > w.limit))


def many(w: World, r: random.Random) -> None:
    topic, queue_id, plain = r.choice(TOPICS), r.randrange(2), r.random() < 0.5
    some = [w.new("put", topic, r, r.choice((0, 20, 200)), queue_id=queue_id) for _ in range(r.randrange(1, 5))]
    if plain:
        result = w.attempt(w.store.put_many, topic, [p.body for p in some], queue_id=queue_id)
    else:
        batch = encode_batch([{"body": p.body, "properties": {}} for p in some], w.store.options.compat)
        if len(batch) > w.limit:
            return
        result = w.attempt(w.store.put_batch, topic, batch, queue_id=queue_id)
    for i, p in enumerate(some if result is not None else []):
        w.acknowledged(p, result, result.queue_offsets[i], result.offsets[i])


def inner(w: World, r: random.Random) -> None:
    some = [w.new("inner", "I", r, r.choice((0, 20, 60))) for _ in range(r.randrange(1, 4))]
    if sum(len(p.body) + 40 for p in some) > w.limit:
        return
    result = w.attempt(w.store.put_inner_batch, "I", [p.body for p in some])
    for i, p in enumerate(some if result is not None else []):
        w.acknowledged(p, result, result.queue_offsets[i], result.offsets[0])


def light(w: World, r: random.Random) -> None:
    names = tuple(name for name in LIGHTS if r.random() < 0.6)
    p = w.new("light", "L", r, lights=names)
    w.acknowledged(p, w.attempt(w.store.put, "L", p.body, light_queues=names or None, too_large=len(p.body) > w.limit))


def keyed(w: World, r: random.Random) -> None:
    p = w.new("keyed", "C", r, key=r.choice(KEYS))
    w.acknowledged(p, w.attempt(w.store.put, "C", p.body, keys=p.key, too_large=len(p.body) > w.limit))


def work(w: World, r: random.Random) -> None:
    p = w.new("work", "W", r, fails=r.random() < 0.4)
    w.acknowledged(p, w.attempt(w.store.put, "W", p.body, too_large=len(p.body) > w.limit))


# ---- what comes later

def delay(w: World, r: random.Random) -> None:
    level = r.choice((1, 1, 2))
    p = w.new("delay", r.choice(TOPICS), r, due=w.far + 10_000)
    result = w.attempt(w.store.put, p.topic, p.body, delay_level=level, too_large=len(p.body) > w.limit)
    w.acknowledged(p, result, -1)
    p.due = w.far + SLACK[level]


SLACK = {1: 101, 2: 5001}


def timer(w: World, r: random.Random) -> None:
    p = w.new("timer", r.choice(TOPICS), r)
    p.due = w.ms + r.choice((1, 2, 3, 5, 10, 40, 200)) * 100 + r.randrange(100)
    result = w.attempt(w.store.put, p.topic, p.body, deliver_at=p.due, too_large=len(p.body) > w.limit)
    w.acknowledged(p, result, -1)


def recall(w: World, r: random.Random) -> None:
    some = [p for p in w.ledger.of("timer") if p.need and not p.recalled and p.due > w.ms and not p.came]
    if not some:
        return
    p = r.choice(some)
    p.recalled = "maybe"
    try:
        result = w.attempt(lambda: w.store.recall(w.store.recall_handle(p.place)))
    except errors.WheelTimerMsgIllegal:         # over, by the furthest clock
        p.recalled = ""
        return
    if result is not None and not w.io.frozen:
        p.recalled, p.need, p.decided = "yes", False, w.options["flush_mode"] == "sync"


def prepare(w: World, r: random.Random) -> None:
    p = w.new("half", r.choice(TOPICS), r, wish=r.choice(("commit", "rollback", "unknown")))
    made = w.attempt(w.store.prepare, p.topic, p.body, group="shop", too_large=len(p.body) > w.limit)
    if made is not None and not w.io.frozen:
        p.id = made.id


def decide(w: World, r: random.Random) -> None:
    some = [p for p in w.ledger.of("half") if p.id and p.state in ("pending", "unsure")]
    if not some:
        return
    p, commit = r.choice(some), r.random() < 0.6
    before, p.state = p.state, "unsure"
    try:
        transaction = w.store.transaction_by_id(p.id)
        result = w.attempt(transaction.commit if commit else transaction.rollback)
    except errors.TransactionUnknown:
        p.id = ""                               # lost in a crash, or cleaned
        return
    except errors.TransactionDecided as decided:
        if before == "pending" and "given up" not in str(decided):
            raise Wrong(f"transaction {p.number} was pending, and is decided: {decided}") from None
        return
    except errors.RmqStoreError:
        if not (w.io.frozen or w.wants):
            raise
        return
    if not w.io.frozen and (result is not None or not w.wants):
        p.state, p.decided = ("commit" if commit else "rollback"), w.options["flush_mode"] == "sync"
        p.need = commit


def check(w: World, r: random.Random) -> None:
    w.attempt(w.store._checker.round, w.store, w.ms)


# ---- consumers

def consume(w: World, r: random.Random | None = None) -> None:
    """Polls until nothing comes; now and then a batch is left as a crash leaves it."""
    for _ in range(100):
        batch = w.attempt(w.consumer.poll, 4)
        if batch is None or w.io.frozen:
            return
        for message in batch:
            p = w.ledger.all[int(bytes(message.body).partition(b":")[0])]
            if p.fails:
                w.attempt(batch.retry, message, delay_level=1)
            else:
                p.came = True
        w.attempt(batch.ack)


# ---- the store as a whole

def delete(w: World, r: random.Random) -> None:
    topic = r.choice(TOPICS)
    w.settle()
    if w.io.frozen:
        return
    there = w.there(topic)
    result = w.attempt(w.store.delete_topics, topic)
    w.ledger.deleted(topic, there, result is not None and not w.io.frozen)


def clean(w: World, r: random.Random) -> None:
    w.settle()
    if not w.io.frozen:
        w.attempt(w.store.clean, 0)
        w.ledger.cleaned(w.store.min_log_offset)


def compact(w: World, r: random.Random) -> None:
    w.attempt(w.store.compact, "C")


def flush(w: World, r: random.Random) -> None:
    if w.attempt(w.store.flush) is not None and not w.io.frozen:
        w.ledger.made_durable()


def limit(w: World, r: random.Random) -> None:
    wanted = r.choice((8192, 1500, 300))
    w.attempt(w.store.reconfigure, message_size_max_bytes=wanted)
    w.limit = w.store.options.message_size_max_bytes


def backup(w: World, r: random.Random) -> None:
    w.settle()
    if w.io.frozen:
        return
    made = w.attempt(w.store.backup, w.place / f"backups of {w.root.name}")
    if made is not None and not w.io.frozen:
        w.ledger.made_durable()
        w.backups.append((made.path, copy.deepcopy(w.ledger)))


def restore(w: World, r: random.Random) -> None:
    if w.backups:
        w.restore(r)


def promote(w: World, r: random.Random) -> None:
    w.promote(r)


def reopen(w: World, r: random.Random) -> None:
    w.shut(r)
    w.open(r)


# ---- faults

def ahead(w: World, r: random.Random) -> None:
    w.set(w.ms + r.choice(AHEAD) * 100)


def back(w: World, r: random.Random) -> None:
    w.set(w.ms - r.choice(BACK) * 100)


def settle(w: World, r: random.Random) -> None:
    w.settle()


def kill(w: World, r: random.Random) -> None:
    """Now, or at some change that is still to come."""
    w.cut = r.random() < 0.5
    w.armed, later = True, r.choice((0, 0, 1, 2, 5, 10, 20, 40))
    if later:
        w.io.freeze("mutate", later)
    else:
        w.io.freeze()


def full(w: World, r: random.Random) -> None:
    """The disk is full for some calls, and then it has room again."""
    w.calm(r)
    kinds, nth, code = no_room()
    w.wants = 1
    w.io.fail(kinds, nth, code, sticky=True)
    for _ in range(r.randrange(1, 5)):
        r.choice((put, many, light, delay, timer, recall, decide, keyed, flush))(w, r)
    w.io.clear()
    w.wants = 0


def moved(w: World, r: random.Random) -> None:
    def works() -> None:
        for _ in range(r.randrange(1, 6)):
            r.choice((put, put, timer, delay, light))(w, r)

    w.moved(r, works)


STEPS: dict[str, tuple[Callable[[World, random.Random], None], int]] = {
    "put": (put, 8), "many": (many, 4), "inner": (inner, 4), "light": (light, 5), "keyed": (keyed, 5), "work": (work, 5),
    "delay": (delay, 5), "timer": (timer, 6), "recall": (recall, 4), "prepare": (prepare, 4), "decide": (decide, 4),
    "check": (check, 2), "consume": (consume, 4), "delete": (delete, 2), "clean": (clean, 2), "compact": (compact, 2),
    "flush": (flush, 2), "limit": (limit, 1), "backup": (backup, 1), "restore": (restore, 1), "promote": (promote, 1),
    "reopen": (reopen, 2), "ahead": (ahead, 6), "back": (back, 2), "settle": (settle, 4), "kill": (kill, 4), "full": (full, 2),
    "moved": (moved, 1)}
