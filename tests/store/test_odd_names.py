"""A log whose file names are multiples of the file size apart, and no multiples of it. RocketMQ accepts such a log."""
import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.soon import until
from tests.store.test_few_descriptors import SMALL, descriptors

SIZE, BODY = SMALL["segment_size_bytes"], bytes(5000)
WAYS = {"mmap": {}, "pool": {"write_path": "pool"}}


@pytest.mark.parametrize("first", [SIZE // 2, SIZE - 4096])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_file_keeps_its_descriptor_until_its_end_is_on_the_device(tmp_path, way, first):
    """The flush has reached the middle of a file, beyond a multiple of the size, when the log is two files further."""
    log, probe = tmp_path / "s" / "commitlog", ProbeIo(keep_bytes=False)
    log.mkdir(parents=True)
    (log / f"{first:020d}").write_bytes(bytes(SIZE))
    with MessageStore.open(tmp_path / "s", _io=probe, flush_backend="fdatasync", **SMALL, **way) as store:
        def fill(end):
            while store.put("T", BODY, wait=False).offset < end:
                pass

        for start in range(first, first + 9 * SIZE, 3 * SIZE):
            fill(start + SIZE - 3 * len(BODY))
            store.flush()
            probe.hold("fdatasync", path=f"/commitlog/{start:020d}")
            fill(start + 2 * SIZE + 1)
            until(lambda start=start: (log / f"{start + 3 * SIZE:020d}").exists())     # before that, old descriptors are closed
            assert f"{log}/{start:020d}" in descriptors(store)
            before = probe.counts()["fdatasync"]
            probe.release()
            store.flush()
            assert probe.counts()["fdatasync"] > before and store.stats()["errno"] == 0
    with MessageStore.open(tmp_path / "s", **SMALL, **way) as store:
        assert store.min_log_offset == first and {bytes(m.body) for m in store.scan("T", 0)} == {BODY}
