"""busy_after_ms holds for everything that puts: who finds the put lock held for longer is refused, and stores nothing."""
import threading
import time

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.codec.batch import encode_batch

BODY = b"x" * 100_000           # large enough to be copied without the GIL

PUTS = {
    "put": lambda store: store.put("T", b"no"),
    "put_large": lambda store: store.put("T", BODY),
    "put_async": lambda store: store.put_async("T", b"no"),
    "put_many": lambda store: store.put_many("T", [b"no"] * 3),
    "put_many_large": lambda store: store.put_many("T", [BODY] * 3),
    "put_many_mixed": lambda store: store.put_many("T", [{"body": b"no", "keys": "k"}] * 3),
    "put_batch": lambda store: store.put_batch("T", encode_batch([{"body": b"no"}] * 3)),
    "put_batch_large": lambda store: store.put_batch("T", encode_batch([{"body": BODY}] * 3)),
}


@pytest.mark.parametrize("how", PUTS)
def test_a_lock_that_is_held_too_long_refuses(tmp_path, how):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, segment_size_bytes=1 << 21, index_enabled=False) as store:
        before = store.put("T", BODY)
        io.hold("map_store")
        holder = threading.Thread(target=store.put, args=("T", BODY))
        holder.start()
        io.wait_held(1)
        io.set_clock(int(time.time() * 1000) + 3000)
        got = []

        def put():
            try:
                got.append(PUTS[how](store))
            except errors.OsPageCacheBusy as refusal:
                got.append(refusal)

        putter = threading.Thread(target=put)
        putter.start()
        putter.join(10)
        io.release()
        putter.join()
        holder.join()
        io.set_clock(None)
        assert isinstance(got[0], errors.OsPageCacheBusy)
        assert store._position("wrote") == before.offset + 2 * before.size
