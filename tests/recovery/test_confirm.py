"""The confirm offset after a crash: it bounds what is dispatched, never what is kept."""
import os
import shutil

import pytest

from rmq_store import MessageStore
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
BODIES = [b"message %d" % i * 20 for i in range(400)]


@pytest.fixture
def image(tmp_path):
    """A killed store of several files with the first 100 messages confirmed: (root, places)."""
    with MessageStore.open(tmp_path / "live", duplication_enabled=True, **SMALL) as s:
        s.confirm(0)
        places = [s.put("T", body, keys=f"k{i}") for i, body in enumerate(BODIES)]
        s.flush()
        s.confirm(places[100].offset)
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 100
        take_image(tmp_path / "live", tmp_path / "image")
        s.confirm(s.max_log_offset)
    confirm_in_checkpoint(tmp_path / "image", places[100].offset)
    return tmp_path / "image", places


def confirm_in_checkpoint(root, offset):
    fd = os.open(root / "checkpoint", os.O_RDWR)
    os.pwrite(fd, offset.to_bytes(8, "big"), 32)
    os.close(fd)


def check(root, places):
    with MessageStore.open(root, duplication_enabled=True, **SMALL) as s:
        assert [bytes(m.body) for m in s.scan()] == BODIES and s.stats()["cut_bytes"] == 0
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 100 and not s.query_key("T", "k100")
        last = s.put("T", b"unconfirmed as well")
        assert last.queue_offset == 400         # those that wait for dispatch have theirs already
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 100
        s.confirm(places[300].offset)
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 300
        s.confirm(last.offset + last.size)
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 401 and s.query_key("T", "k399")
        assert [bytes(m.body) for m in s.scan("T", 0)][:400] == BODIES


def test_it_bounds_dispatch_and_the_log_stays_whole(image):
    check(*image)


def test_it_bounds_what_is_built_again(image):
    root, places = image
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    check(root, places)


@pytest.mark.parametrize("offset", [0, 1 << 62, -5])
def test_nothing_is_lost_whatever_the_checkpoint_says(image, offset):
    root, _ = image
    if offset < 0:
        (root / "checkpoint").unlink()
    else:
        confirm_in_checkpoint(root, offset)
    with MessageStore.open(root, duplication_enabled=True, **SMALL) as s:
        assert [bytes(m.body) for m in s.scan()] == BODIES
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == (400 if offset > 0 else 100)
        s.confirm(s.max_log_offset)


def test_without_duplication_the_checkpoint_bounds_nothing(image):
    with MessageStore.open(image[0], **SMALL) as s:
        assert s.max_offset("T", 0) == 400


def test_what_a_clean_store_has_dispatched_stays_visible(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put_many("T", BODIES)
    with MessageStore.open(tmp_path / "s", duplication_enabled=True, **SMALL) as s:
        assert s.max_offset("T", 0) == 400
        last = s.put("T", b"new")
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 400
        s.confirm(last.offset + last.size)
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 401


@pytest.mark.parametrize("queue_offset", [(1 << 63) - 1, (1 << 63) - 2, (1 << 63) // 20])
def test_a_record_with_a_queue_offset_that_no_queue_has_is_told_and_moves_none(image, caplog, queue_offset):
    root, places = image
    last = places[-1].offset
    (path,) = (p for p in (root / "commitlog").iterdir() if int(p.name) <= last < int(p.name) + p.stat().st_size)
    with open(path, "r+b") as file:
        file.seek(last - int(path.name) + 20)
        file.write(queue_offset.to_bytes(8, "big"))
    with MessageStore.open(root, duplication_enabled=True, **SMALL) as s:
        (said,) = (r for r in caplog.records if getattr(r, "event", "") == "RECORDS_PLACELESS")
        assert said.fields["offset"] == last and said.fields["count"] == 1
        put = s.put("T", b"next")
        assert put.queue_offset == 399
        s.confirm(s.max_log_offset)
        assert s.wait_dispatched(10) and s.max_offset("T", 0) == 400
        assert [bytes(m.body) for m in s.scan("T", 0)] == [*BODIES[:399], b"next"]
