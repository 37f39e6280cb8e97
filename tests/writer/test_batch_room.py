"""The largest batch that a pool takes has room wherever the log stands; one byte more is refused; nothing waits for ever."""
import re
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.codec.batch import encode_batch
from rmq_store.errors import MessageIllegal
from tests.crash import scenario
from tests.soon import until

BLANK, SEGMENT, BLOCK = 8, 1 << 20, 4096
SIZES = {"segment_size_bytes": SEGMENT, "message_size_max_bytes": 200_000, "pool_window_size_bytes": 64 << 10,
         "index_enabled": False, "segment_prezero": "off", "delay": "refuse"}
RING = pytest.mark.skipif(not scenario.RING_HERE, reason="the kernel refuses a ring")


def batch(total, record):
    """Messages whose records have `total` bytes together, of which an empty one has `record`."""
    n = total // (record + 10)
    return encode_batch([{"body": bytes(10)}] * (n - 1) + [{"body": bytes(total - n * record - (n - 1) * 10)}])


@pytest.mark.parametrize("kind", [pytest.param("io_uring", marks=RING), pytest.param("io_uring-buffered", marks=RING),
                                  "fdatasync"])
@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_batch_has_room_where_it_needs_most(tmp_path, kind, more):
    """It does not fit behind the log by one byte, so the rest of the file, about as long, is in the pool as well; direct I/O
    keeps what is written of the block in which the log ends."""
    with MessageStore.open(tmp_path / "s", **{**SIZES, **scenario.config_options(("pool", "async", kind))}) as store:
        record = store.put("T", b"").size
        pool = store.stats()["pool_bytes"]
        with pytest.raises(MessageIllegal) as refused:
            store.put_batch("T", batch(pool, record))
        limit = int(re.search(r"the limit is (\d+)", str(refused.value))[1])
        assert pool - BLOCK - BLANK <= 2 * limit + 1 <= pool
        for at in (SEGMENT - limit - more - BLANK + 1 - BLOCK, SEGMENT - limit - more - BLANK + 1):
            while (rest := at - store._position("wrote")) > 0:
                store.put("T", bytes(rest - record if rest < 100_000 + 2 * record else 100_000))
        assert at == store._position("wrote")
        until(lambda: store.flush() == at and store.stats()["committed"] == at)
        got = []

        def put():
            try:
                got.append(store.put_batch("T", batch(limit + more, record)))
            except MessageIllegal as refusal:
                got.append(refusal)

        putter = threading.Thread(target=put, daemon=True)
        putter.start()
        putter.join(20)
        assert got, "it waits for room that there will never be"
        if more:
            assert isinstance(got[0], MessageIllegal)
        else:
            assert got[0].offsets[0] == SEGMENT
