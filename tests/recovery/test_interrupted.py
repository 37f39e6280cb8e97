"""A store that was closed in order and is damaged: opening mends what leads to its messages, also when it is killed, or fails,
at any of its calls, once or twice, and is then done again.

Nothing but the damage itself tells such an open what to do. So before it takes the damage away, the directory has to say that
the store is not as it was closed, and from where on queues are to be built."""
import errno
import random
import struct

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.crash.disk import read_directory
from tests.crash.states import Scratch

pytestmark = pytest.mark.crash
SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 20 * 16, "index_slots": 20, "index_entries_max": 60,
         "message_size_max_bytes": 4096, "manifest_enabled": False, "consumequeue_flush_interval_ms": 3_600_000,
         "consumequeue_flush_interval_max_ms": 3_600_000,
         "commitlog_loss_accepted": True}       # one damage takes the last file of the log
BEGIN = 1_700_000_000_000
COUNT = 100         # two queues of four files, three files of the log


def body(i):
    return b"%04d" % i * 90


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return closed_in_order(tmp_path_factory.mktemp("whole") / "s")


def closed_in_order(root):
    """The files of a store that was; each message ten seconds after the one before, so that every file of the log but the last
    is long covered by the checkpoint."""
    io = ProbeIo(keep_bytes=False)
    io.set_clock(BEGIN, 10_000)
    with MessageStore.open(root, _io=io, **SMALL) as store:
        for i in range(COUNT):
            store.put("T", body(i), queue_id=i % 2, keys=f"k{i}", tags="tag")
    return read_directory(root)


def edit(image, path, at, data):
    old = image[path]
    image[path] = old[:at] + data + old[at + len(data):]


def queue(image, queue_id, nth):
    return sorted(p for p in image if p.startswith(f"consumequeue/T/{queue_id}/"))[nth]


def log(image, nth):
    return sorted(p for p in image if p.startswith("commitlog/") and image[p] is not None)[nth]


def a_hole_in_the_last_file(image):
    edit(image, queue(image, 0, -1), 20 + 8, bytes(4))


def a_hole_in_an_earlier_file(image):
    edit(image, queue(image, 1, -3), 15 * 20 + 8, bytes(4))


def the_last_file_is_empty(image):
    image[queue(image, 0, -1)] = b""


def the_newest_entry_is_rotten(image):
    path = queue(image, 1, -1)
    size, = struct.unpack_from(">i", image[path], 20 + 8)
    edit(image, path, 20 + 8, struct.pack(">i", size + 2))


def the_newest_entry_leads_beyond_the_log(image):
    edit(image, queue(image, 1, -1), 20 + 2, b"\1")


def all_queues_are_gone(image):
    for path in [p for p in image if p.startswith("consumequeue")]:
        del image[path]


def the_index_is_ahead(image):
    path = sorted(p for p in image if p.startswith("index/"))[-1]
    edit(image, path, 24, struct.pack(">q", 1 << 40))


def a_record_near_the_end_is_rotten(image):
    path = log(image, -1)
    at = image[path].index(body(COUNT - 3)) + 7
    edit(image, path, at, b"?")


def the_last_file_of_the_log_is_gone(image):
    del image[log(image, -1)]


DAMAGES = [a_hole_in_the_last_file, a_hole_in_an_earlier_file, the_last_file_is_empty, the_newest_entry_is_rotten,
           the_newest_entry_leads_beyond_the_log, all_queues_are_gone, the_index_is_ahead, a_record_near_the_end_is_rotten,
           the_last_file_of_the_log_is_gone]


def look(root):
    """What is wrong with the store, or how many messages it has."""
    with MessageStore.open(root, **SMALL) as store:
        found = [(int(bytes(m.body)[:4]), m.queue_id, m.queue_offset) for m in store.scan()]
        if found != [(i, i % 2, i // 2) for i in range(len(found))]:
            return f"the log holds {found}"
        for queue_id in (0, 1):
            have = [(int(bytes(m.body)[:4]), m.queue_offset) for m in store.scan("T", queue_id)]
            want = [(i, offset) for i, q, offset in found if q == queue_id]
            if have != want or store.max_offset("T", queue_id) != len(want):
                return f"queue {queue_id} has {len(have)} to {store.max_offset('T', queue_id)}, the log {len(want)}"
        for i in range(len(found)):
            if not store.query_key("T", f"k{i}"):
                return f"the index does not lead to message {i}"
        new = store.put("T", b"next", queue_id=0)
        store.wait_dispatched(30)
        got = [bytes(m.body) for m in store.get("T", 0, new.queue_offset)]
        if new.queue_offset != (len(found) + 1) // 2 or got != [b"next"]:
            return "the next message does not get into its queue"
    return len(found)


def open_spoilt(root, spoil):
    """One opening, and a close, with something in the way. True: it was met."""
    probe = ProbeIo(keep_bytes=False)
    spoil(probe)
    try:
        MessageStore.open(root, _io=probe, **SMALL).close()
    except (RmqStoreError, OSError) as e:
        assert probe.frozen or getattr(e, "errno", errno.EIO) in (errno.EIO, None), e
    return bool(probe.hits or probe.frozen)


SPOILS = {"killed": lambda n: lambda probe: probe.freeze("mutate|sync", n),
          "fails": lambda n: lambda probe: probe.fail("mutate|sync", n, errno.EIO),
          "fails from then on": lambda n: lambda probe: probe.fail("mutate|sync", n, errno.EIO, sticky=True)}


def interrupted(scratch, image, spoil):
    """Opens the damaged store with something in the way of its first call, of its second, and so on. Returns what is wrong with
    what is left, or None, and how many calls were met."""
    expected = look(scratch.write(image))
    assert isinstance(expected, int) and expected >= COUNT - 40, expected
    n = 0
    while True:
        n += 1
        root = scratch.write(image)
        met = open_spoilt(root, SPOILS[spoil](n))
        found = look(root)
        if found != expected:
            return f"{spoil} at call {n}: {found}", n
        if not met:
            return None, n


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_interrupted_once(tmp_path, whole, damage, spoil):
    image = dict(whole)
    damage(image)
    with Scratch(tmp_path) as scratch:
        wrong, calls = interrupted(scratch, image, spoil)
    assert wrong is None and calls > 8, wrong


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_interrupted_twice(tmp_path, whole, damage):
    image = dict(whole)
    damage(image)
    rnd = random.Random(damage.__name__)
    with Scratch(tmp_path) as scratch:
        expected = look(scratch.write(image))
        for _ in range(12):
            root = scratch.write(image)
            first, second = rnd.randrange(1, 40), rnd.randrange(1, 40)
            open_spoilt(root, SPOILS["killed"](first))
            open_spoilt(root, SPOILS["killed"](second))
            found = look(root)
            assert found == expected, f"killed at call {first}, then at call {second}: {found}"


def test_the_images_are_what_they_say(tmp_path, whole):
    """Undamaged, the store has all its messages, and opening it changes nothing that is to be mended."""
    with Scratch(tmp_path) as scratch:
        root = scratch.write(dict(whole))
        assert look(root) == COUNT
