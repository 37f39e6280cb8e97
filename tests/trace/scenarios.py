"""Small scenarios for the explorer, and the judge of what a power cut leaves of one: two or three actors on one store."""
import errno
from typing import Any

from rmq_store import MessageStore
from rmq_store.errors import RmqStoreError
from tests.crash.disk import Image
from tests.crash.states import Scratch
from tests.trace.explorer import Scenario, Stage

__all__ = ["SCENARIOS", "judge_image", "told"]

EVERYWHERE = "pwrite|msync|fdatasync|fsync|sync_dir|rename|unlink|ftruncate|ring_write|ring_sync|ring_reap"
SYNCS = "pwrite|msync|fdatasync|rename|ring_write|ring_sync|ring_reap"


def one(stage: Stage) -> None:
    stage.put(wait=False)


def two_files(stage: Stage) -> None:
    stage.put(7000, wait=False)
    stage.put(7000, wait=False)


def full_files(stage: Stage) -> None:
    """Three files, all on the device and dispatched: the first two may go."""
    for _ in range(3):
        two_files(stage)
    stage.flush()
    stage.commit()
    stage.store._final_checkpoint()


def waited(stage: Stage) -> None:
    stage.put(wait=True)


def flush(stage: Stage) -> None:
    stage.flush()


def checkpoint(stage: Stage) -> None:
    stage.store._final_checkpoint()


def clean(stage: Stage) -> None:
    stage.store.clean(0)


def close(stage: Stage) -> None:
    stage.store.close()
    stage.probe.mark(("closed", stage.root))


def consume(stage: Stage) -> None:
    """Three messages to be consumed, not flushed."""
    for _ in range(3):
        stage.put(wait=False)
    stage.commit()
    stage.more["consumer"] = stage.store.consumer("g", "T")
    stage.more["offsets"] = stage.store.offsets


def acknowledged(stage: Stage) -> None:
    """Three messages that were consumed, of which neither the log nor the file of offsets knows on the device."""
    consume(stage)
    batch = stage.more["consumer"].poll(10)
    batch.ack()
    del batch
    stage.store._entering.enter(stage.store)        # else close() has a file more to write, and the orders are others


def acknowledge(stage: Stage) -> None:
    """One more, then the file of offsets."""
    batch = stage.more["consumer"].poll(10)
    if batch is not None:
        batch.ack()
        del batch
    stage.more["offsets"].flush()


def write_offsets(stage: Stage) -> None:
    stage.more["offsets"].flush()


def give_back(stage: Stage) -> None:
    """Consumes with failures: gives back what it got first, then takes all there is, whatever a read says."""
    consumer, handled = stage.more["consumer"], stage.more.setdefault("handled", set())
    given_back = nothing = 0
    while nothing < 3:
        try:
            batch = consumer.poll(2)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            continue
        if batch is None:
            nothing += 1
        elif given_back < 2:
            given_back += 1
            batch.nack()
        else:
            handled.update(m.keys for m in batch)
            batch.ack()
        del batch
    stage.more["check"] = lambda: [] if len(handled) == 3 else [f"consumed {sorted(handled)} of three, nothing is left"]


def bad_read(stage: Stage) -> None:
    stage.probe.fail("pread", 1, errno.EIO, "/consumequeue/")


SCENARIOS = [
    Scenario("flush-put", (("flush", flush), ("put", one)), one),
    Scenario("flush-put-flush", (("flush", flush), ("put", one), ("again", flush)), one),
    Scenario("waited-put", (("waited", waited), ("put", one), ("async", Stage.put_async)), one),
    Scenario("commit-flush-put", (("commit", Stage.commit), ("flush", flush), ("put", one)), one),
    Scenario("roll", (("flush", flush), ("roll", two_files), ("put", one)), one),
    Scenario("zeros", (("flush", flush), ("put", two_files)), one, options={"segment_prezero": "window"}),
    Scenario("checkpoint", (("checkpoint", checkpoint), ("put", waited)), one, SYNCS, None, clock=False, step_ms=2000),
    Scenario("clean", (("clean", clean), ("put", two_files)), full_files, EVERYWHERE, None, clock=False),
    Scenario("close", (("put", one), ("close", close)), one, EVERYWHERE, "/commitlog/", step_ms=2000),
    Scenario("offsets-close", (("offsets", write_offsets), ("close", close)), acknowledged, SYNCS, None, clock=False),
    Scenario("consume-put", (("consume", acknowledge), ("put", one), ("offsets", write_offsets)), consume, SYNCS, None,
             clock=False),
    Scenario("nack-bad-read", (("consume", give_back), ("fault", bad_read)), consume, "pread", "/consumequeue/", clock=False),
]


# ---- what a power cut leaves

def judge(root: str, notes: list[Any], options: dict[str, Any]) -> str | None:
    """Opens the directory and says what is wrong with what is in it, or None."""
    sent = {note[3]: (note[1], note[2]) for note in notes if note[0] == "put"}
    places = {note[1]: note[2:] for note in notes if note[0] == "place"}
    flushed = max([note[2] for note in notes if note[0] == "flushed"], default=0)
    acked = {note[2] for note in notes if note[0] == "acked"}
    plain = {**options, "flush_mode": "async", "write_path": "mmap", "flush_backend": "auto"}
    for name in ("uring_durability", "uring_direct"):
        plain.pop(name, None)
    try:
        with MessageStore.open(root, **plain) as store:
            low = store.min_log_offset
            found = [(bytes(m.body), m.offset, m.queue_id, m.queue_offset, m.keys) for m in store.scan()]
            queues = {q: [(m.offset, m.queue_offset) for m in store.scan("T", q)] for q in {f[2] for f in found}}
    except (RmqStoreError, OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    for body, offset, queue_id, queue_offset, keys in found:
        if body not in sent or sent[body] != (keys, queue_id):
            return f"the message at {offset} was never put: {body[:16]!r}"
        place = places.get(sent[body][0])
        if place is not None and place[:2] != (offset, queue_offset):
            return f"{sent[body][0]} is at {(offset, queue_offset)}, acknowledged at {place[:2]}"
    there = {sent[f[0]][0] for f in found}
    for key, (offset, _, size) in places.items():
        if low <= offset and key not in there and (offset + size <= flushed or offset in acked):
            return f"{key} at {offset} is gone, told durable up to {flushed}"
    for queue_id, entries in queues.items():
        if entries != [(f[1], f[3]) for f in found if f[2] == queue_id]:
            return f"queue {queue_id} leads to {entries}"
    return None


def told(notes: list[Any]) -> tuple[Any, ...]:
    """What `judge` goes by, the same whatever directory the store is in."""
    return tuple(note[:1] + note[2:] if note[0] in ("flushed", "acked") else note for note in notes
                 if note[0] in ("put", "place", "flushed", "acked"))


def judge_image(scratch: Scratch, options: dict[str, Any]) -> Any:
    """The judge for tests.crash.states.explore."""

    def one_state(image: Image, notes: list[Any]) -> str | None:
        return judge(scratch.write(image), notes, options)

    return one_state
