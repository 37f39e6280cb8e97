"""Queue entries that the device never got: after a power cut every message of the log is in its queue again, wherever they lay.

Entries are written without a sync, queue files have their length and their name at once. So any subset of the sectors of
entries that no checkpoint covers may be zeros, in any number of files of a queue."""
import random

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 20 * 60, "index_enabled": False,
         "consumequeue_flush_interval_ms": 3_600_000, "consumequeue_flush_interval_max_ms": 3_600_000}
SECTOR = 512
BEGIN = 1_700_000_000_000


def body(i):
    return b"%06d" % i


def put(store, first, count):
    for i in range(first, first + count):
        assert store.put("T", body(i), queue_id=i % 3 // 2, tags=f"tag{i}").status.name == "PUT_OK"
    assert store.wait_dispatched(30)
    store.flush()


def killed(tmp_path, before, count):
    """The image of a kill: `before` messages that a checkpoint covers, ten seconds apart, and `count` that none does."""
    live, image = tmp_path / "live", tmp_path / "image"
    io = ProbeIo(keep_bytes=False)
    io.set_clock(BEGIN, 10_000)
    if before:
        with MessageStore.open(live, _io=io, **SMALL) as store:
            put(store, 0, before)
    with MessageStore.open(live, _io=io, **SMALL) as store:
        old = {p: p.read_bytes() for p in queue_files(live)}
        put(store, before, count)
        take_image(live, image)
    return image, {image / p.relative_to(live): data for p, data in old.items()}


def rare(root, count, others, clean=False):
    """A closed store with `count` messages of a rare topic, `others` behind each, and a checkpoint for all. Its I/O table."""
    io = ProbeIo(keep_bytes=False)
    io.set_clock(BEGIN, 10_000)
    with MessageStore.open(root, _io=io, **SMALL) as store:
        for i in range(count):
            store.put("Rare", b"%d" % i)
            put(store, i * others, others)
        if clean:
            store.clean(hours=0, files_max=2, pace_ms=0)
    return io


def queue_files(root):
    return sorted(p for p in (root / "consumequeue").rglob("*") if p.is_file())


def lose(path, old, lost):
    """Sectors number `lost` of a file go back to what a checkpoint had seen."""
    data = bytearray(path.read_bytes())
    for number in lost:
        begin = number * SECTOR
        end = min(begin + SECTOR, len(data))
        data[begin:end] = old[begin:end].ljust(end - begin, b"\0")
    path.write_bytes(data)


def all_there(root, count):
    with MessageStore.open(root, **SMALL) as store:
        for queue_id in (0, 1):
            want = [body(i) for i in range(count) if i % 3 // 2 == queue_id]
            found = [(m.queue_offset, bytes(m.body)) for m in store.scan("T", queue_id)]
            assert found == list(enumerate(want)), (queue_id, len(found), len(want))
            assert store.max_offset("T", queue_id) == len(want)
        assert [m.tags for m in store.scan()] == [f"tag{i}" for i in range(count)]
        assert store.put("T", body(count), queue_id=0).queue_offset == sum(i % 3 // 2 == 0 for i in range(count))


@pytest.mark.parametrize("before", [0, 500])
def test_no_entry_reached_the_device(tmp_path, before):
    image, old = killed(tmp_path, before, 800)
    for path in queue_files(image):
        lose(path, old.get(path, b""), range(3))
    all_there(image, before + 800)


@pytest.mark.parametrize("before", [0, 500])
def test_all_but_the_last_files_stayed_behind(tmp_path, before):
    """The last files of each queue were written back by the kernel, those before them were not."""
    image, old = killed(tmp_path, before, 800)
    for queue_id in (0, 1):
        for path in sorted((image / "consumequeue" / "T" / str(queue_id)).iterdir())[:-3]:
            lose(path, old.get(path, b""), range(3))
    all_there(image, before + 800)


@pytest.mark.parametrize("seed", range(12))
def test_any_sectors_stayed_behind(tmp_path, seed):
    rnd = random.Random(seed)
    before, count = rnd.choice([0, 40, 700]), rnd.randrange(1, 900)
    image, old = killed(tmp_path, before, count)
    share = rnd.choice([0.1, 0.5, 0.9])
    for path in queue_files(image):
        lose(path, old.get(path, b""), [n for n in range(3) if rnd.random() < share])
    all_there(image, before + count)


def test_a_queue_that_was_idle_for_long_costs_no_walk_over_the_log(tmp_path):
    """Its newest entry is lost, and the one before it leads to the log's first file: dispatch begins where the checkpoint
    ends."""
    live, image = tmp_path / "live", tmp_path / "image"
    io = ProbeIo(keep_bytes=False)
    io.set_clock(BEGIN, 10_000)
    with MessageStore.open(live, _io=io, **SMALL) as store:
        store.put("Idle", b"first")
        put(store, 0, 2000)
    with MessageStore.open(live, _io=io, **SMALL) as store:
        store.put("Idle", b"second")
        put(store, 2000, 10)
        take_image(live, image)
    path = image / "consumequeue" / "Idle" / "0" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:20].ljust(len(data), b"\0"))
    with MessageStore.open(image, **SMALL) as store:
        assert [bytes(m.body) for m in store.scan("Idle", 0)] == [b"first", b"second"]
        assert store.stats()["dispatched_records"] < 600        # of the file that the checkpoint leaves open, and later ones


def test_a_readonly_open_of_a_cleaned_store_whose_queues_have_nothing(tmp_path):
    """The log does not begin at 0 any more, and no entry says so."""
    live, image = tmp_path / "live", tmp_path / "image"
    with MessageStore.open(live, **SMALL) as store:
        put(store, 0, 1500)
        assert store.clean(hours=0, pace_ms=0).min_log_offset > 0
        put(store, 1500, 10)
        low = store.min_log_offset
        take_image(live, image)
    for path in queue_files(image):
        lose(path, b"", range(3))
    before = {p: p.read_bytes() for p in sorted(image.rglob("*")) if p.is_file()}
    with MessageStore.open(image, readonly=True, **SMALL) as store:
        assert store.min_log_offset == low and store.needs_recovery
        bodies = [bytes(m.body) for m in store.scan()]
        assert bodies == [body(i) for i in range(1510 - len(bodies), 1510)]
    assert {p: p.read_bytes() for p in sorted(image.rglob("*")) if p.is_file()} == before
    with MessageStore.open(image, **SMALL) as store:
        assert sorted(bytes(m.body) for q in (0, 1) for m in store.scan("T", q)) == bodies


@pytest.mark.parametrize("kept", [0, 1, 3])
@pytest.mark.parametrize("cleaned", [False, True])
def test_a_queue_that_lost_what_the_checkpoint_vouches_for(tmp_path, kept, cleaned):
    """A sector that rotted: a queue has nothing, or little, of what lies below the place where recovery begins."""
    live, image = tmp_path / "live", tmp_path / "image"
    io = rare(live, 7, 300, clean=cleaned)
    with MessageStore.open(live, _io=io, **SMALL) as store:
        store.put("Rare", b"7")
        put(store, 2100, 10)
        whole = [(m.queue_offset, bytes(m.body)) for m in store.scan() if m.topic == "Rare"]
        low = store.min_offset("Rare", 0)
        take_image(live, image)
    assert (whole[0][0] > 0) is cleaned
    path = image / "consumequeue" / "Rare" / "0" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:kept * 20].ljust(len(data), b"\0"))
    with MessageStore.open(image, **SMALL) as store:
        assert [(m.queue_offset, bytes(m.body)) for m in store.scan("Rare", 0)] == whole
        assert (store.min_offset("Rare", 0), store.max_offset("Rare", 0)) == (low, 8)
        assert store.put("Rare", b"8").queue_offset == 8


ROTTEN = {"earlier": -200, "inside": 7, "later": 40_000, "far": 1 << 40}


@pytest.mark.parametrize("rotten", ROTTEN)
@pytest.mark.parametrize("kept", [1, 3])
@pytest.mark.parametrize("killed", [False, True])
def test_a_queue_that_lost_its_end_and_whose_last_entry_is_rotten(tmp_path, killed, kept, rotten):
    """Two damages: what is filled again begins where a record does, and before all that is lost."""
    live, root = tmp_path / "live", tmp_path / "image"
    io = rare(live, 7, 100)
    with MessageStore.open(live, _io=io, **SMALL) as store:
        store.put("Rare", b"7")
        put(store, 700, 10)
        whole = [(m.topic, m.queue_id, m.queue_offset, bytes(m.body)) for m in store.scan()]
        if killed:
            take_image(live, root)
    if not killed:
        take_image(live, root)
    path = root / "consumequeue" / "Rare" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    at = (kept - 1) * 20
    wrong = int.from_bytes(data[at:at + 8], "big") + ROTTEN[rotten]
    if wrong >= 0:
        data[at:at + 8] = wrong.to_bytes(8, "big")
    data[kept * 20:] = bytes(len(data) - kept * 20)
    if not killed:
        data[20 * 20] = 1           # after a stop in order only what stands behind the end tells
    path.write_bytes(data)
    for _ in range(2):
        with MessageStore.open(root, **SMALL) as store:
            delivered = [(m.topic, m.queue_id, m.queue_offset, bytes(m.body))
                         for topic, queue_id in (("Rare", 0), ("T", 0), ("T", 1)) for m in store.scan(topic, queue_id)]
            assert sorted(delivered) == sorted(whole) and store.stats()["unreadable_records"] == 0
            n = store.max_offset("Rare", 0)
            assert store.put("Rare", b"%d" % n).queue_offset == n
            whole.append(("Rare", 0, n, b"%d" % n))


def test_entries_that_have_changed_places(tmp_path):
    """Each is whole and leads to a record of its queue, of another place; the checkpoint vouches for all of them."""
    live, root = tmp_path / "live", tmp_path / "image"
    io = rare(live, 12, 50)
    with MessageStore.open(live, _io=io, **SMALL) as store:
        put(store, 600, 10)
        take_image(live, root)
    path = root / "consumequeue" / "Rare" / "0" / f"{0:020d}"
    data = path.read_bytes()
    units = [data[i:i + 20] for i in range(0, len(data), 20)]
    units[2:5] = units[4:1:-1]
    path.write_bytes(b"".join(units))
    with MessageStore.open(root, **SMALL) as store:
        assert [(m.queue_offset, bytes(m.body)) for m in store.scan("Rare", 0)] == [(i, b"%d" % i) for i in range(12)]
