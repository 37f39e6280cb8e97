"""What recovery cuts off is copied first, also where an earlier cut has left a copy under the same name."""
import errno
import re

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False}


def cut_amid(tmp_path, root, image, tag):
    """200 more messages, a kill, a record of the first file that rots: their bodies."""
    with MessageStore.open(root, **SMALL) as store:
        places = [store.put("T", f"{tag}{i:05d}".encode() * 100) for i in range(200)]
        store.wait_dispatched(30)
        store.flush()
        take_image(root, image)
    log = image / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    at = next(p.offset for p in places if p.offset > 30_000) + 120
    data[at:at + 4] = b"\xff\xff\xff\xff"
    log.write_bytes(data)
    with MessageStore.open(image, **SMALL) as store:
        assert store.stats()["cut_bytes"] > 0


def test_a_second_cut_keeps_both(tmp_path):
    cut_amid(tmp_path, tmp_path / "live", tmp_path / "one", "AAA")
    cut_amid(tmp_path, tmp_path / "one", tmp_path / "two", "BBB")
    kept = b"".join(p.read_bytes() for d in ("commitlog", ".salvage") for p in (tmp_path / "two" / d).iterdir() if p.is_file())
    for tag in ("AAA", "BBB"):
        there = {int(n) for n in re.findall(rb"%s(\d{5})" % tag.encode(), kept)}
        assert len(there) >= 199, (tag, len(there))     # but for the one that rotted


def test_the_same_cut_again_leaves_one_copy(tmp_path):
    cut_amid(tmp_path, tmp_path / "live", tmp_path / "one", "AAA")
    names = sorted(p.name for p in (tmp_path / "one" / ".salvage").iterdir())
    assert all(re.fullmatch(r"\d{20}", name) for name in names) and names


def test_records_without_the_checksum_that_is_required_now(tmp_path):
    """Upstream's recovery ends the log at the first of them (forceVerifyPropCRC), and so does this one: all of it is kept."""
    live, image = tmp_path / "live", tmp_path / "image"
    with MessageStore.open(live, **SMALL) as store:
        for i in range(50):
            store.put("T", b"message %d" % i)
        store.flush()
        take_image(live, image)
    before = (image / "commitlog" / ("0" * 20)).read_bytes().rstrip(b"\0")
    with MessageStore.open(image, record_crc_required=True, **SMALL) as store:
        assert store.stats()["cut_bytes"] == len(before)
    assert (image / ".salvage" / ("0" * 20)).read_bytes() == before


@pytest.mark.untraced       # files are changed behind the trace's back
def test_no_room_for_the_copy(tmp_path):
    """Nothing is cut without one, and what was written of it goes again."""
    root, probe = tmp_path / "s", ProbeIo(keep_bytes=False)
    with MessageStore.open(root, **SMALL) as store:
        end = store.put("T", b"x").size
        store.flush()
    log = root / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[end:end + 5000] = b"noise" * 1000
    log.write_bytes(data)
    (root / "abort").touch()
    probe.fail("pwrite", errno=errno.ENOSPC, path="/.salvage/", sticky=True)
    with pytest.raises(errors.DiskFull):
        MessageStore.open(root, _io=probe, **SMALL)
    assert log.read_bytes() == bytes(data) and list((root / ".salvage").iterdir()) == []
    with MessageStore.open(root, **SMALL) as store:
        assert store.cut_bytes == 5000
    assert (root / ".salvage" / f"{end:020d}").read_bytes() == b"noise" * 1000
