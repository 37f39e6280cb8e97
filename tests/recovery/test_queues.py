"""Queue entries that a power cut tore, or that rotted: what the log says is right."""
import os

import pytest

from rmq_store import MessageStore
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
COUNT = 250


def fill(root, image=None):
    with MessageStore.open(root, **SMALL) as s:
        for i in range(COUNT):
            s.put("T", b"message %d" % i * 10, tags=f"tag{i}", queue_id=i % 2)
        s.wait_dispatched(10)
        s.flush()
        if image:
            take_image(root, image)


def entries(root):
    return {str(p.relative_to(root)): p.read_bytes().rstrip(b"\0") for p in sorted((root / "consumequeue").rglob("*"))
            if p.is_file()}


@pytest.mark.parametrize("torn", [12, 13, 19, 8, 11])
def test_an_entry_torn_inside_is_written_again(tmp_path, torn):
    """Its last bytes lay in a sector that never reached the device; what is left of it looks like an entry."""
    root = tmp_path / "image"
    fill(tmp_path / "live", root)
    whole = entries(root)
    queue = root / "consumequeue" / "T" / "1" / f"{2000:020d}"
    data = queue.read_bytes()
    at = 20 * 20 + torn
    queue.write_bytes(data[:at] + bytes(len(data) - at))
    with MessageStore.open(root, **SMALL) as s:
        assert s.max_offset("T", 1) == COUNT // 2
        assert [m.tags for m in s.get("T", 1, 120, tags="tag241")] == ["tag241"]
    assert entries(root) == whole


@pytest.mark.parametrize("field, value", [(8, 0x7FFFFFFF), (8, 1 << 20), (0, 0x7FFFFFFF)])
@pytest.mark.parametrize("clean", [True, False])
def test_an_entry_that_leads_beyond_the_log_hides_nothing(tmp_path, field, value, clean):
    root = tmp_path / "image"
    fill(*((root,) if clean else (tmp_path / "live", root)))
    whole = entries(root)
    queue = root / "consumequeue" / "T" / "0" / f"{2000:020d}"
    fd = os.open(queue, os.O_RDWR)
    os.pwrite(fd, value.to_bytes(4, "big"), 24 * 20 + field)
    os.close(fd)
    with MessageStore.open(root, **SMALL) as s:
        assert s.max_offset("T", 0) == COUNT // 2
        put = s.put("T", b"next")
        assert put.queue_offset == COUNT // 2
        assert s.wait_dispatched(10) and bytes(s.get("T", 0, put.queue_offset)[0].body) == b"next"
        assert bytes(s.get("T", 0, 124)[0].body) == b"message 248" * 10
    assert entries(root)["consumequeue/T/0/00000000000000002000"][:500] == whole["consumequeue/T/0/00000000000000002000"][:500]


@pytest.mark.parametrize("index", [0, 7, 49, 99, 100, 124])
@pytest.mark.parametrize("clean", [True, False])
def test_an_entry_that_is_none_any_more_ends_no_queue(tmp_path, index, clean):
    """A size of 0 looks like the end of the queue; what stands behind it says that it is not."""
    root = tmp_path / "image"
    fill(*((root,) if clean else (tmp_path / "live", root)))
    whole = entries(root)
    queue = root / "consumequeue" / "T" / "0" / f"{index // 100 * 2000:020d}"
    fd = os.open(queue, os.O_RDWR)
    os.pwrite(fd, bytes(4), index % 100 * 20 + 8)
    os.close(fd)
    with MessageStore.open(root, **SMALL) as s:
        assert s.max_offset("T", 0) == COUNT // 2 and s.put("T", b"next").queue_offset == COUNT // 2
        built = not clean or index in (99, 124)         # where its end was looked for, it was found
        found = [m.queue_offset for m in s.scan("T", 0)][:COUNT // 2 + built]
        assert [i for i in range(COUNT // 2) if i not in found] == ([] if built else [index])
    if built:
        for name, data in entries(root).items():
            assert data[:len(whole[name])] == whole[name]
