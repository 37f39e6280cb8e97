"""A queue that nothing was put to for long, in a store that stopped out of order: what it has is safe, and stays."""
import shutil

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo

SEGMENT = 1 << 12
SMALL = {"segment_size_bytes": SEGMENT, "consumequeue_file_size_bytes": 2000, "index_enabled": False}
COUNT = 30


def made(root):
    """Q has 30 messages; T, behind it, fills more log files; the checkpoint covers both. The log's end."""
    io = ProbeIo(keep_bytes=False)
    io.set_clock(1_700_000_000_000, 100_000)
    with MessageStore.open(root, _io=io, **SMALL) as s:
        for i in range(COUNT):
            s.put("Q", b"q%d" % i)
        for _ in range(100):
            s.put("T", b"x" * 50)
        s.flush()
    with MessageStore.open(root, _io=io, **SMALL) as s:
        last = s.put("T", b"y", wait=True)
    return last.offset + last.size


def looks(root, *, readonly=False):
    with MessageStore.open(root, readonly=readonly, **SMALL) as s:
        return [bytes(m.body) for m in s.scan("Q", 0)], s.max_offset("Q", 0)


def is_whole(root):
    whole = [b"q%d" % i for i in range(COUNT)]
    assert looks(root, readonly=True) == (whole, COUNT)
    for i in range(2):
        assert looks(root) == (whole, COUNT + i)
        with MessageStore.open(root, **SMALL) as s:
            assert s.put("Q", b"next%d" % i, wait=True).queue_offset == COUNT + i
        whole.append(b"next%d" % i)
        (root / "abort").touch()


def cut_behind(root, tmp_path, put):
    """A store that a checkpoint covers, then `put`, whose records a power cut takes, while its entries are on the device."""
    end = made(root)
    shutil.copy(root / "checkpoint", tmp_path / "checkpoint")
    with MessageStore.open(root, **SMALL) as s:
        put(s)
    shutil.copy(tmp_path / "checkpoint", root / "checkpoint")
    for path in (root / "commitlog").iterdir():
        path.write_bytes(path.read_bytes()[:max(0, end - int(path.name))].ljust(SEGMENT, b"\0"))
    (root / "abort").touch()


@pytest.mark.untraced       # files are changed behind the trace's back
@pytest.mark.parametrize("lost", [0, 1, 2, 3, 8, 20, 90])
def test_records_behind_it_are_lost_and_their_entries_are_not(tmp_path, lost):
    root = tmp_path / "s"
    cut_behind(root, tmp_path, lambda s: [s.put("Q", b"lost%d" % i) for i in range(lost)])
    is_whole(root)


@pytest.mark.untraced
@pytest.mark.parametrize("bit", [(2, 0x01), (5, 0x40), (6, 0x20), (7, 0x01)])
@pytest.mark.parametrize("index", [0, 10, 27, 28, 29])
def test_an_entry_of_it_rots(tmp_path, index, bit):
    root = tmp_path / "s"
    made(root)
    path = root / "consumequeue" / "Q" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[index * 20 + bit[0]] ^= bit[1]
    path.write_bytes(data)
    (root / "abort").touch()
    for i in range(2):
        bodies, end = looks(root)
        assert set(bodies) >= {b"q%d" % n for n in range(COUNT) if n != index}
        assert end == COUNT + i
        with MessageStore.open(root, **SMALL) as s:
            assert s.put("Q", b"next", wait=True).queue_offset == COUNT + i
        (root / "abort").touch()


@pytest.mark.untraced
@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_its_records_were_cleaned_and_new_ones_come(tmp_path, count, caplog):
    """Its entries lead nowhere any more, but say the next number: that is no damage."""
    root = tmp_path / "s"
    made(root)
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    io = ProbeIo(keep_bytes=False)
    io.set_clock(1_800_000_000_000, 100_000)
    with MessageStore.open(root, _io=io, **SMALL) as s:
        for i in range(count):
            assert s.put("Q", b"new%d" % i, wait=True).queue_offset == COUNT + i
    (root / "abort").touch()
    caplog.clear()
    with MessageStore.open(root, **SMALL) as s:
        assert [bytes(m.body) for m in s.scan("Q", 0)] == [b"new%d" % i for i in range(count)]
        assert s.put("Q", b"next").queue_offset == COUNT + count
    assert "damaged" not in caplog.text


@pytest.mark.untraced
@pytest.mark.parametrize("count", [1, 2, 40])
def test_all_of_a_new_queue_is_lost(tmp_path, count, caplog):
    """It is no damage: not all of the log is dispatched again."""
    root = tmp_path / "s"
    cut_behind(root, tmp_path, lambda s: [s.put("New", b"lost") for _ in range(count)])
    shutil.rmtree(root / "consumequeue" / "Q")          # as a Java broker deletes a topic
    caplog.clear()
    with MessageStore.open(root, **SMALL) as s:
        assert s.topics() == ["T"]
        assert s.put("New", b"x").queue_offset == 0
    assert "damaged" not in caplog.text


@pytest.mark.untraced
@pytest.mark.parametrize("keep", [0, 1, 2, 3, 20])
@pytest.mark.parametrize("hole", [512, 1024, 2048, 4096, 12288])
def test_an_entry_is_torn_amid_of_new_ones(tmp_path, keep, hole, caplog):
    """What is left of one looks like an entry that leads to the log's first byte."""
    root, sizes = tmp_path / "s", SMALL | {"consumequeue_file_size_bytes": 20_000}
    io = ProbeIo(keep_bytes=False)
    io.set_clock(1_700_000_000_000, 100_000)
    with MessageStore.open(root, _io=io, **sizes) as s:
        for i in range(250):
            s.put("Q" if 50 <= i < 50 + keep else "T", b"%d" % i * 20)
        s.flush()
    with MessageStore.open(root, _io=io, **sizes) as s:
        s.put("T", b"y", wait=True)
    shutil.copy(root / "checkpoint", tmp_path / "checkpoint")
    with MessageStore.open(root, **sizes) as s:
        s.put_many("Q", [b"later"] * 700)
    shutil.copy(tmp_path / "checkpoint", root / "checkpoint")
    path = root / "consumequeue" / "Q" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[20 * keep:hole] = bytes(hole - 20 * keep)
    path.write_bytes(data)
    (root / "abort").touch()
    caplog.clear()
    with MessageStore.open(root, **sizes) as s:
        assert len(list(s.scan("Q", 0))) == keep + 700 == s.max_offset("Q", 0)
    assert "damaged" not in caplog.text
