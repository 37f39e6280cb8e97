"""Memory stays within the pool and 64 MiB more, however many producers push against a device that does not answer."""
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.bench.children import in_child
from rmq_store.bench.machine import anonymous_memory
from tests.crash import scenario

PRODUCERS = 8
MOST = 64 << 20
CONFIGS = [("pool", "async", "fdatasync"), ("pool", "sync", "fdatasync"), ("pool", "async", "msync")]
if scenario.RING_HERE:
    CONFIGS += [("pool", "async", "io_uring"), ("pool", "sync", "io_uring")]


def fill_up(root, config, body):
    io = ProbeIo(keep_bytes=False)
    options = {**scenario.config_options(config), "segment_size_bytes": 256 << 20, "segment_prezero": "off",
               "flush_deadline_ms": 600_000}
    done, kept, failed = threading.Event(), [], []
    with MessageStore.open(root, _io=io, **options) as store:
        store.put("T", bytes(body))
        store.flush()
        before = anonymous_memory()
        io.hold("pwrite|ring_submit|msync|fdatasync")

        def produce(queue):
            try:
                while not done.is_set():
                    future = store.put_async("T", bytes(body), queue_id=queue)
                    if not future.done():
                        kept.append(future)
            except Exception as error:
                failed.append(repr(error))

        producers = [threading.Thread(target=produce, args=(k,)) for k in range(PRODUCERS)]
        for t in producers:
            t.start()
        pause = threading.Event()
        while store.stats()["pool_waits"] < 3 * PRODUCERS and not failed:
            pause.wait(0.01)
        stats = store.stats()
        held = stats["wrote"] - stats["committed"]
        memory = anonymous_memory() - before
        done.set()
        io.release()
        for t in producers:
            t.join()
        outcomes = {f.result().status.name for f in kept}
    return {"held": held, "pool": stats["pool_bytes"], "memory": memory, "messages": len(kept), "failed": failed,
            "outcomes": sorted(outcomes)}


@pytest.mark.untraced       # it counts the memory of the process
@pytest.mark.parametrize("body", [100, 20_000])
@pytest.mark.parametrize("config", CONFIGS, ids="-".join)
def test_a_device_that_does_not_answer_costs_no_memory_beyond_the_pool(tmp_path, config, body):
    """Futures of what is not durable yet included, which the producers keep."""
    found = in_child(fill_up, tmp_path / "s", config, body)
    assert found["failed"] == [] and found["outcomes"] == (["PUT_OK"] if config[1] == "sync" else []), found
    # Full; direct writes keep some of it for readers. msync's copy into the mapping needs no device: only its sync does.
    full = 0 if config[2] == "msync" else found["pool"] // 2
    assert full <= found["held"] <= found["pool"], found
    assert found["memory"] <= MOST, found
