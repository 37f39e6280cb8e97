"""A follower at each call with which a writer's recovery takes queue entries away and brings them back."""
import collections
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.elsewhere.test_follow_meets import KINDS, SIZES, put
from tests.images import take_image
from tests.soon import until

CALLS = ["pwrite", "unlink", "rename", "sync_dir"]
SAFE, COUNT = 30, 2100         # messages whose entries the checkpoint calls safe, and all
NOW = 1_800_000_000_000


def crashed(top: Path, kind: str, **sizes: Any) -> Path:
    """A store whose writer was killed: a recovery cannot tell which of its last entries are on the device."""
    io = ProbeIo(keep_bytes=False)
    io.set_clock(NOW)
    with MessageStore.open(top / "live", _io=io, **sizes) as writer:
        put(writer, kind, SAFE, b"x", tags="A")
        io.set_clock(NOW + 10_000)          # what is in the log three seconds before a checkpoint is safe
        put(writer, kind, 1, b"x", tags="A")
        assert writer.wait_dispatched(30)
        writer.flush()
    with MessageStore.open(top / "live", _io=io, **sizes) as writer:
        put(writer, kind, COUNT - SAFE - 1, b"x", tags="A")
        assert writer.wait_dispatched(30)
        return take_image(top / "live", top / "crashed")


def look(reader: MessageStore, begin: int, end: int, tags: str) -> None:
    """A consumer passes over nothing, wherever it stands: also at an entry across the end of a page."""
    for at in sorted({begin, begin + 1, 204, 409, 614, (begin + end) // 2, end // 2, end - 1}):
        found = reader.get("T", 0, at, 4, tags=tags)
        offsets = [m.queue_offset for m in found]
        assert offsets == list(range(at, at + len(offsets))) and found.next_offset <= at + len(offsets), (at, found, offsets)


def at_each_call(io: ProbeIo, thread: threading.Thread, looks: Callable[[], None]) -> collections.Counter[str]:
    seen: collections.Counter[str] = collections.Counter()
    while thread.is_alive():
        for call in io.standing():
            looks()
            seen[call.kind] += 1
            io.let(call.ticket)
        thread.join(0.0001)
    return seen


@pytest.mark.parametrize("size", [460, 92_000], ids=["small", "pages"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_passes_over_nothing(tmp_path: Path, kind: str, size: int) -> None:
    sizes = SIZES | {"consumequeue_file_size_bytes": size // 23 * 20, "batch_consumequeue_file_size_bytes": size}
    root, io = crashed(tmp_path, kind, **sizes), ProbeIo(keep_bytes=False)
    writers: list[MessageStore] = []
    each = 2 if kind == "batch" else 1
    with MessageStore.open(root, readonly=True, follow=True, **sizes) as reader:
        until(lambda: reader.max_offset("T", 0) == COUNT * each)
        for call in CALLS:
            io.gate(call, "consumequeue")
        thread = threading.Thread(target=lambda: writers.append(MessageStore.open(root, _io=io, **sizes)))
        thread.start()
        try:
            seen = at_each_call(io, thread, lambda: look(reader, SAFE * each, COUNT * each, "A" if each == 1 else "*"))
        finally:
            io.ungate()
            thread.join()
        with writers[0]:
            assert writers[0].wait_dispatched(30)
            until(lambda: reader.max_offset("T", 0) == COUNT * each, 20_000)
            assert [m.queue_offset for m in reader.scan("T", 0)] == list(range(COUNT * each))
    assert seen["pwrite"] > 1, seen
