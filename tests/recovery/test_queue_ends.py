"""Where a queue ends that nothing was put to lately: after rot in its newest entry, after a cut, after cleaning."""
import struct

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_enabled": False}
pytestmark = pytest.mark.untraced       # files are changed behind the trace's back


def clock():
    """A minute lies between two messages: a checkpoint covers all but the last."""
    io = ProbeIo(keep_bytes=False)
    io.set_clock(1_700_000_000_000, 10_000)
    return io


def change(path, position, data):
    old = bytearray(path.read_bytes())
    old[position:position + len(data)] = data
    path.write_bytes(old)


def queue_file(root, topic="Q", start=0):
    return root / "consumequeue" / topic / "0" / f"{start:020d}"


def zero_log(root, begin, end):
    for path in (root / "commitlog").iterdir():
        data, start = bytearray(path.read_bytes()), int(path.name)
        low, high = max(0, begin - start), min(len(data), end - start)
        if low < high:
            data[low:high] = bytes(high - low)
            path.write_bytes(data)


def bodies(store, topic="Q"):
    return [bytes(m.body) for m in store.scan(topic, 0)]


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lower", [1, 20_000, 400_000])
def test_the_newest_entry_leads_in_front_of_a_cleaned_log(tmp_path, lower, crashed):
    root = tmp_path / "s"
    io = clock()
    with MessageStore.open(root, _io=io, **SMALL) as store:
        store.put_many("T", [b"x" * 50] * 3000)
        store.flush()
        store.wait_dispatched(10)
        store.clean(0, files_max=3, pace_ms=0)
        for i in range(10):
            store.put("Q", b"q%d" % i)
        for _ in range(2000):
            store.put("T", b"x" * 50)
        store.wait_dispatched(10)
        low = store.min_log_offset
    change(queue_file(root), 9 * 20, max(0, low - lower).to_bytes(8, "big"))
    if crashed:
        (root / "abort").touch()
    with MessageStore.open(root, **SMALL) as store:
        assert bodies(store) == [b"q%d" % i for i in range(10)] and store.get("Q", 0, 0).next_offset == 10
        assert not store.clean_expired_queues().removed
        assert store.put("Q", b"new", wait=True).queue_offset == 10


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    root = tmp_path_factory.mktemp("idle") / "s"
    io = clock()
    with MessageStore.open(root, _io=io, **SMALL | {"segment_size_bytes": 4096}) as store:
        for _ in range(60):
            store.put("T", b"x" * 50)
        for i in range(30):
            store.put("Q", b"q%d" % i)
        for _ in range(100):
            store.put("T", b"x" * 50)
        store.flush()
    with MessageStore.open(root, _io=io, **SMALL | {"segment_size_bytes": 4096}) as store:
        store.put("T", b"y", wait=True)
        return root, store.max_log_offset


@pytest.mark.parametrize("byte", range(12))
@pytest.mark.parametrize("bit", range(8))
def test_any_bit_of_its_newest_entry_rots_then_a_kill(tmp_path, idle, byte, bit):
    image, end = idle
    root = tmp_path / "s"
    take_image(image, root)
    at = 29 * 20
    data = bytearray(queue_file(root).read_bytes()[at:at + 20])
    data[byte] ^= 1 << bit
    if int.from_bytes(data[:8], "big", signed=True) >= end:
        pytest.skip("it leads behind the log's end, as what a power cut took: docs/faults.md")
    change(queue_file(root), at, data)
    (root / "abort").touch()
    for again in range(2):
        with MessageStore.open(root, **SMALL | {"segment_size_bytes": 4096}) as store:
            assert bodies(store)[:29] == [b"q%d" % i for i in range(29)]
            assert store.put("Q", b"new").queue_offset == 30 + again
        (root / "abort").touch()


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("rotten", [None, (10, 5, 0x40), (10, 6, 0x01), (0, 0, 0x80), (30, 8, 0x80), (49, 0, 0x80),
                                    (58, 4, 0x10)])
def test_a_rotten_entry_amid_of_a_light_queue(tmp_path, rotten, crashed):
    """Nobody fills such a queue again: what stands behind the entry stays."""
    root = tmp_path / "s"
    io = clock()
    with MessageStore.open(root, _io=io, **SMALL) as store:
        puts = [store.put("P", b"m%d" % i, properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(i)})
                for i in range(60)]
        for _ in range(300):
            store.put("T", b"x" * 50)
        store.flush()
    path = queue_file(root, "%LMQ%a")
    path.parent.mkdir(parents=True)
    data = bytearray(b"".join(struct.pack(">qiq", p.offset, p.size, 0) for p in puts).ljust(2000, b"\0"))
    if rotten:
        data[rotten[0] * 20 + rotten[1]] ^= rotten[2]
    path.write_bytes(data)
    expected = [b"m%d" % i for i in range(60) if not rotten or i != rotten[0]]
    for _ in range(2):
        if crashed:
            (root / "abort").touch()
        with MessageStore.open(root, **SMALL) as store:
            assert bodies(store, "%LMQ%a") == expected and store.max_offset("%LMQ%a", 0) == 60


@pytest.mark.parametrize("idle_opens", [0, 3])
def test_a_queue_that_begins_late_keeps_its_numbers(tmp_path, caplog, idle_opens):
    """Its older files were cleaned, and a power cut takes what its only one led to."""
    live, root = tmp_path / "live", tmp_path / "s"
    sizes = SMALL | {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 400}
    io = clock()
    with MessageStore.open(live, _io=io, **sizes) as store:
        for i in range(20):
            store.put("Q", b"q%d" % i)
        for _ in range(1000):
            store.put("T", b"x" * 50)
        store.flush()
    with MessageStore.open(live, _io=io, **sizes) as store:
        lost = store.put("T", b"lost")
        behind = store.put("Q", b"q20", wait=True)
        store.wait_dispatched(10)
        store.clean(0, files_max=3, pace_ms=0)
        assert [p.name for p in queue_file(live).parent.iterdir()] == [f"{400:020d}"]
        take_image(live, root)
    zero_log(root, lost.offset, behind.offset)
    for opened in range(idle_opens):
        with MessageStore.open(root, **sizes) as store:
            assert store.max_offset("Q", 0) == 20
        if opened == 0:
            caplog.clear()
    assert "damaged" not in caplog.text
    for again in range(3):
        with MessageStore.open(root, **sizes) as store:
            assert store.put("Q", b"next").queue_offset == 20 + again


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_new_queue_of_a_cleaned_log_costs_what_it_has(tmp_path, count, caplog):
    live, root = tmp_path / "live", tmp_path / "s"
    io = clock()
    with MessageStore.open(live, _io=io, **SMALL) as store:
        store.put_many("T", [b"x" * 50] * 6000)
        store.flush()
        store.clean(0, files_max=2, pace_ms=0)
    with MessageStore.open(live, _io=io, **SMALL) as store:
        for i in range(count):
            store.put("New", b"n%d" % i, wait=True)
        store.flush()
        store.wait_dispatched(10)
        take_image(live, root)
    caplog.clear()
    with MessageStore.open(root, **SMALL) as store:
        assert bodies(store, "New") == [b"n%d" % i for i in range(count)]
        assert store.stats()["dispatched_records"] < 1000       # those of the log's last file, not 5,000
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("byte, value", [(8, b"\0\0\0\x5a"), (0, b"\0\0\0\0\0\x01"), (8, b"\x5a\0\0\0")])
def test_the_last_entry_of_a_file_with_room_rots(tmp_path, byte, value):
    """It does not say that the file is full."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        for i in range(600):
            store.put("TU"[i % 12 > 0], b"%d" % i * 100, queue_id=0)
        store.flush()
        store.wait_dispatched(10)
        store.clean(0, files_max=1, pace_ms=0)
        expected = bodies(store, "T")
    change(queue_file(root, "T"), 99 * 20 + byte, value)
    with MessageStore.open(root, **SMALL) as store:
        assert bodies(store, "T") == expected and store.max_offset("T", 0) == 50


@pytest.mark.parametrize("entries", ["zeros", "there"])
def test_a_new_queue_that_a_power_cut_takes_is_gone(tmp_path, entries, caplog):
    """A file of zeros would be called damaged by every open from then on."""
    live, root = tmp_path / "live", tmp_path / "s"
    io = clock()
    with MessageStore.open(live, _io=io, **SMALL) as store:
        store.put_many("T", [b"x" * 50] * 3000)
        end = store.flush()
    with MessageStore.open(live, _io=io, **SMALL) as store:
        store.put("New", b"n", wait=True)
        store.wait_dispatched(10)
        take_image(live, root)
    zero_log(root, end, end + (1 << 16))
    if entries == "zeros":
        change(queue_file(root, "New"), 0, bytes(2000))
    for _ in range(3):
        caplog.clear()
        with MessageStore.open(root, **SMALL) as store:
            assert store.stats()["dispatched_records"] < 1000 and store.max_offset("New", 0) == 0
    assert "damaged" not in caplog.text
    with MessageStore.open(root, **SMALL) as store:
        assert store.put("New", b"n").queue_offset == 0


def test_an_entry_torn_across_a_sector_beyond_four_gib(tmp_path):
    """What is left of it leads to a place 4 GiB lower, which was cleaned long ago."""
    live, root = tmp_path / "live", tmp_path / "s"
    sizes = SMALL | {"consumequeue_file_size_bytes": 20_000}
    io, start = clock(), 1 << 32
    (live / "commitlog").mkdir(parents=True)
    (live / "commitlog" / f"{start:020d}").write_bytes(bytes(1 << 16))
    with MessageStore.open(live, _io=io, **sizes) as store:
        store.put_many("T", [b"x" * 100] * 300)
    path = queue_file(live)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(struct.pack(">qiq", i * 200, 200, 0) for i in range(51)).ljust(20_000, b"\0"))
    with MessageStore.open(live, _io=io, **sizes) as store:
        for _ in range(600):
            store.put("T", b"x" * 100)
    old = path.read_bytes()
    with MessageStore.open(live, _io=io, **sizes) as store:
        for i in range(4):
            store.put("Q", b"q%d" % i, wait=True)
        store.wait_dispatched(10)
        take_image(live, root)
    change(queue_file(root), 512, old[512:1024])
    for _ in range(2):
        with MessageStore.open(root, **sizes) as store:
            assert bodies(store) == [b"q%d" % i for i in range(4)]
        (root / "abort").touch()
