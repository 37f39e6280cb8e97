"""Records whose topic, queue id or queue offset rot, which no checksum covers, where queues are filled from the log."""
import shutil
import struct

import pytest

from rmq_store import MessageStore
from rmq_store.services.integrity.repair import repair
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 12, "consumequeue_file_size_bytes": 400, "index_slots": 100, "index_entries_max": 1000}
COUNT = 120
QUEUES = 3


def body(i):
    return b"message %d" % i


def made(root):
    """Closed in order; message i is in queue i % 3 of T, or, each seventh, in queue 0 of U. Their log offsets."""
    with MessageStore.open(root, **SMALL) as s:
        return [s.put("U" if i % 7 == 0 else "T", body(i), queue_id=0 if i % 7 == 0 else i % QUEUES).offset
                for i in range(COUNT)]


def places():
    """(topic, queue, queue offset) of each message."""
    ends: dict = {}
    found = []
    for i in range(COUNT):
        queue = ("U", 0) if i % 7 == 0 else ("T", i % QUEUES)
        found.append((*queue, ends.get(queue, 0)))
        ends[queue] = ends.get(queue, 0) + 1
    return found, ends


def rot(root, offset, field, change):
    size = SMALL["segment_size_bytes"]
    path = root / "commitlog" / f"{offset // size * size:020d}"
    data = bytearray(path.read_bytes())
    at = offset % size
    if field == "topic":
        at = data.index(b"\x01T", at + 84) + 1
        data[at] ^= ord("T") ^ ord("U")
    else:
        at, form = {"queue id": (at + 12, ">i"), "queue offset": (at + 20, ">q")}[field]
        struct.pack_into(form, data, at, struct.unpack_from(form, data, at)[0] + change)
    path.write_bytes(data)


def claim(topic, queue, at, field, change):
    return ("U" if field == "topic" else topic, queue + change * (field == "queue id"), at + change * (field == "queue offset"))


DAMAGE = [("queue id", 1), ("queue id", -1), ("queue id", 50), ("topic", 0), ("queue offset", 1), ("queue offset", 3),
          ("queue offset", 1000), ("queue offset", 1 << 40), ("queue offset", -2)]


@pytest.mark.untraced       # records are changed behind the trace's back
@pytest.mark.parametrize("lost", ["queues", "entries", "nothing", "repaired"])
@pytest.mark.parametrize(("field", "change"), DAMAGE)
@pytest.mark.parametrize("victims", [(40,), (40, 43), (118,), (1, 40, 103)])
def test_all_others_are_in_their_places(tmp_path, field, change, victims, lost):
    offsets = made(tmp_path)
    for i in victims:
        rot(tmp_path, offsets[i], field, change)
    if lost == "queues":
        shutil.rmtree(tmp_path / "consumequeue")
    elif lost == "entries":
        for path in (tmp_path / "consumequeue").rglob("0*0"):
            path.write_bytes(bytes(400))
    elif lost == "repaired":
        repair(tmp_path, dry_run=False, open_store=MessageStore.open, **SMALL)
    found, ends = places()
    gone = [found[i] for i in victims]
    claimed = [claim(*place, field, change) for place in gone]      # of two records that say the same the first is believed
    for life in range(2):
        with MessageStore.open(tmp_path, **SMALL) as s:
            assert wrong(s, [(*place, body(i)) for i, place in enumerate(found)
                             if i not in victims and place not in claimed]) == []
            for (topic, queue), end in ends.items():
                there = s.max_offset(topic, queue)
                assert there >= end + life - ((topic, queue, end - 1) in gone)
                assert s.put(topic, b"next", queue_id=queue).queue_offset == there
                s.wait_dispatched(10)
                assert wrong(s, [(topic, queue, there, b"next")]) == []
        if life == 0:
            (tmp_path / "abort").touch()


def wrong(store, expected):
    """Which of these (topic, queue, queue offset, body) the store does not give."""
    return [(topic, queue, at) for topic, queue, at, said in expected
            if [(bytes(m.body), m.queue_offset) for m in store.get(topic, queue, at, 1)] != [(said, at)]]


def cleaned(root):
    """A store whose log lost its first two files to cleaning, and its queues: what is left of T, in order."""
    with MessageStore.open(root, **SMALL) as s:
        put = []
        for i in range(200):
            if i % 10 == 0:
                s.put("U", body(i))
            put.append((i, s.put("T", body(i)).offset))
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    shutil.rmtree(root / "consumequeue")
    return [(i, offset) for i, offset in put if offset >= 2 * SMALL["segment_size_bytes"]]


@pytest.mark.untraced
@pytest.mark.parametrize(("number", "says"), [
    (0, -64), (0, -1), (0, 1), (0, 2), (0, 64), (0, 1 << 40), (1, 1 << 40), (1, -30), (1, 30), (2, 1 << 40), (2, -30),
    ("first of U", 5), ("first of U", 0), ("first of U", 1 << 40)])
def test_the_first_records_that_are_left(tmp_path, number, says):
    """Of a queue in a log that was cleaned nothing but its records says at which number it begins."""
    left = cleaned(tmp_path)
    if number == "first of U":
        with MessageStore.open(tmp_path, **SMALL) as s:
            victim, at = -1, next(m.offset for m in s.scan("U", 0))
            number_of_u = next(m.queue_offset for m in s.scan("U", 0))
        shutil.rmtree(tmp_path / "consumequeue")
        rot(tmp_path, at, "queue offset", says - number_of_u)
        size = SMALL["segment_size_bytes"]
        path = tmp_path / "commitlog" / f"{at // size * size:020d}"
        data = bytearray(path.read_bytes())
        data[data.index(b"\x01U", at % size + 84) + 1] = ord("T")
        path.write_bytes(data)
    else:
        victim, at = left[number]
        rot(tmp_path, at, "queue offset", says)
    for life in range(2):
        with MessageStore.open(tmp_path, **SMALL) as s:
            assert wrong(s, [("T", 0, i, body(i)) for i, _ in left if i not in (victim, victim + says)]) == []
            assert s.max_offset("T", 0) == 200 + life == s.put("T", b"next").queue_offset
        (tmp_path / "abort").touch()


def test_a_queue_with_one_record_in_a_log_that_was_cleaned(tmp_path):
    left = cleaned(tmp_path)
    with MessageStore.open(tmp_path, **SMALL) as s:
        last = s.put("Lone", b"1").queue_offset
        assert last == 0 and s.min_offset("T", 0) == left[0][0]
    shutil.rmtree(tmp_path / "consumequeue")
    with MessageStore.open(tmp_path, **SMALL) as s:
        assert wrong(s, [("Lone", 0, 0, b"1")]) == [] and s.put("Lone", b"2").queue_offset == 1


def test_what_many_records_say_fills_no_disk(tmp_path):
    """Each queue's last record says a number for which the log has room; for all of them together it has not."""
    queues, more = 40, 200
    with MessageStore.open(tmp_path, **SMALL) as s:
        for i in range(queues):
            s.put("T", b"first", queue_id=i)
        for _ in range(more):
            s.put("U", b"x" * 50)
        last = [s.put("T", b"last", queue_id=i) for i in range(queues)]
        end = s.max_log_offset
    room = (last[0].offset - last[0].size * queues) // 91
    for put in last:
        rot(tmp_path, put.offset, "queue offset", room // 2)
    shutil.rmtree(tmp_path / "consumequeue")
    with MessageStore.open(tmp_path, **SMALL) as s:
        assert sum(s.max_offset("T", i) for i in range(queues)) < end // 91 + 2 * queues
        for i in range(queues):
            at = s.max_offset("T", i)           # asked first: a put that is dispatched moves it
            assert s.put("T", b"next", queue_id=i).queue_offset == at


@pytest.mark.parametrize("rotten", range(15, 20))
def test_a_record_in_front_of_the_confirm_offset(tmp_path, rotten):
    """What follows is not there yet when the queue is filled: it comes to its places all the same."""
    root, image, options = tmp_path / "live", tmp_path / "s", SMALL | {"duplication_enabled": True}
    with MessageStore.open(root, **options) as s:
        s.confirm(0)
        places = [s.put("T", b"m%d" % i) for i in range(40)]
        s.flush()
        s.confirm(places[20].offset)
        s.wait_dispatched(10)
        take_image(root, image)
        s.confirm(s.max_log_offset)
    with (image / "checkpoint").open("r+b") as file:
        file.seek(32)
        file.write(places[20].offset.to_bytes(8, "big"))
    shutil.rmtree(image / "consumequeue")
    rot(image, places[rotten].offset, "queue id", 7)
    with MessageStore.open(image, **options) as s:
        s.confirm(s.max_log_offset)
        s.wait_dispatched(10)
        assert wrong(s, [("T", 0, i, b"m%d" % i) for i in range(40) if i != rotten]) == []
        assert s.put("T", b"next").queue_offset == 40
        s.confirm(s.max_log_offset)
