"""A consumer killed between any two steps: what was not acknowledged comes again, what a written offset covers does not, and
what failed ends as a retry or as a dead letter."""
import contextlib
import shutil

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "consumequeue_file_size_bytes": 200, "delay": "store_only"}
COUNT = 8


def numbers(batch):
    return {int(bytes(m.body)) for m in batch}


class Life:
    """What one life of a consumer did, as far as the disk listened."""

    def __init__(self, io):
        self.io, self.steps = io, 0
        self.acked, self.written, self.failed, self.dead, self.again = set(), set(), set(), set(), set()

    def note(self, kind, found):
        """Behind a step: it counts unless the disk had stopped listening by then."""
        if not self.io.frozen:
            kind |= found
            self.steps += 1

    def live(self, root, **options):
        with MessageStore.open(root, _io=self.io, **SMALL | options) as store, store.consumer("G", "T") as consumer:
            with consumer.poll(3) as batch:             # 0, 1, 2: the second fails, the third for good
                assert batch.retry(batch[1]) == "%RETRY%G"
                self.note(self.failed, {1})
                assert batch.retry(batch[2], delay_level=-1) == "%DLQ%G"
                self.note(self.dead, {2})
            self.note(self.acked, {0, 1, 2})
            store.offsets.flush()
            self.note(self.written, {0, 1, 2})
            assert store.wait_dispatched(30)
            batches = [consumer.poll(2) for _ in range(3)]          # 3, 4 and 5, 6 and, in its turn, 1 once more
            for batch in batches[1:]:                               # not committed where one before it is out
                batch.ack()
                self.note(self.again if batch.topic == "%RETRY%G" else self.acked, numbers(batch))
            batches[0].nack()
            store.offsets.flush()
            batch = batches.clear()


def next_life(root, options):
    """Numbers that are handed out, and those of dead letters."""
    came = set()
    with MessageStore.open(root, **SMALL | options) as store, store.consumer("G", "T") as consumer:
        while (batch := consumer.poll()) is not None:
            with batch:
                came |= numbers(batch)
        return came, numbers(store.scan("%DLQ%G", 0))


@pytest.mark.parametrize("mode", ["mmap", "pool"])
def test_killed_between_any_two_steps(memory_disk, mode):
    options = {"write_path": "pool", "flush_mode": "sync"} if mode == "pool" else {}
    with MessageStore.open(memory_disk / "full", **SMALL | options) as store:
        for i in range(COUNT):
            store.put("T", b"%d" % i)
    seen = set()
    for nth in range(1, 200):
        root = memory_disk / "s"
        shutil.copytree(memory_disk / "full", root)
        life = Life(ProbeIo(keep_bytes=False))
        life.io.freeze("mutate", nth)
        with contextlib.suppress(errors.RmqStoreError, OSError):
            life.live(root, **options)
        came, dead = next_life(root, options)
        done = life.written - life.failed - life.dead
        assert set(range(COUNT)) - life.acked <= came | dead, f"killed at change {nth}: not acknowledged, and passed over"
        assert not done & came, f"killed at change {nth}: written, and came again"
        assert life.failed & life.written - life.again <= came, f"killed at change {nth}: failed, and not tried again"
        assert life.dead & life.written <= dead, f"killed at change {nth}: failed for good, and no dead letter"
        seen.add(life.steps)
        shutil.rmtree(root)
        if not life.io.frozen:
            break
    assert not life.io.frozen and nth > 10 and {0, 1, 3, 6} <= seen
