"""The clock of a machine runs backwards, stands, or jumps: store times never decrease, and nothing is lost."""

import pytest

from rmq_store import MessageStore, verify
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
START = 1_700_000_000_000
CLOCKS = {"backwards": -1000, "standing": 0, "forwards": 3_600_000}


@pytest.mark.parametrize("step", CLOCKS.values(), ids=CLOCKS)
@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_store_times_never_decrease(tmp_path, step, write_path):
    probe = ProbeIo(keep_bytes=False)
    probe.set_clock(START, step)
    live, image = tmp_path / "live", tmp_path / "image"
    with MessageStore.open(live, _io=probe, write_path=write_path, **SMALL) as s:
        times = [s.put("T", b"%d" % i * 300, keys=f"k{i}").store_timestamp for i in range(100)]
        s.flush()
        assert s.wait_dispatched(30)
        take_image(live, image)
    assert times == sorted(times) and (times[-1] > times[0]) == (step > 0)
    probe = ProbeIo(keep_bytes=False)
    probe.set_clock(START - 86_400_000)         # a day before all that is there
    with MessageStore.open(image, _io=probe, write_path=write_path, **SMALL) as s:      # as killed: recovery reads times too
        assert [m.store_timestamp for m in s.scan()] == times
        assert s.max_offset("T", 0) == 100 and len(s.query_key("T", "k99").messages) == 1
        assert s.put("T", b"later").store_timestamp >= times[-1]
        assert s.wait_dispatched(30)
        assert s.offset_by_time("T", 0, times[50]) == times.index(times[50])
    with MessageStore.open(image, **SMALL) as s:
        assert s.max_offset("T", 0) == 101 and not s.stats()["recovered"]


def test_a_checkpoint_ahead_of_a_log_that_was_closed_is_mended(tmp_path):
    with MessageStore.open(tmp_path / "s") as store:
        store.put("T", b"a", keys="k")
    ahead = (1 << 42).to_bytes(8, "big")
    with open(tmp_path / "s" / "checkpoint", "r+b") as file:
        file.write(ahead * 3)
    with MessageStore.open(tmp_path / "s") as store:
        store.put("T", b"b", keys="k")
    assert (tmp_path / "s" / "checkpoint").read_bytes()[:24].count(ahead) == 0
    assert [f for f in verify(tmp_path / "s") if f.severity != "note"] == []
