"""Records of which a power cut left a part: a sector of topic or properties never got there, and no checksum says so."""
import random
import shutil
import struct
import zlib

import pytest

from rmq_store import MessageStore, verify
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000,
         "message_size_max_bytes": 40_000}
SECTOR = 512


def killed(tmp_path, messages):
    """(the image of a kill, its log file's bytes, what each put returned)"""
    live, image = tmp_path / "live", tmp_path / "image"
    with MessageStore.open(live, **SMALL) as store:
        places = [store.put(topic, body, properties=properties, tags="a tag") for topic, body, properties in messages]
        store.wait_dispatched(30)
        store.flush()
        take_image(live, image)
    log = image / "commitlog" / ("0" * 20)
    return image, log, places


def content(store):
    return [(m.topic, bytes(m.body), m.properties) for m in store.scan()]


@pytest.mark.parametrize("seed", range(8))
def test_a_sector_that_stayed_behind_is_never_served(tmp_path, seed):
    """Any sector of the last records is zeros: what is served is the beginning of what was put, byte for byte."""
    rnd = random.Random(seed)
    messages = [("T" * rnd.randrange(1, 100), rnd.randbytes(rnd.randrange(200)),
                 {f"n{k}": "v" * rnd.randrange(1, rnd.choice([9, 600])) for k in range(rnd.randrange(6))}) for _ in range(40)]
    image, log, places = killed(tmp_path, messages)
    data = log.read_bytes()
    with MessageStore.open(image, readonly=True, **SMALL) as store:
        whole = content(store)
    end = places[-1].offset + places[-1].size
    for sector in range(0, end, SECTOR):
        torn = bytearray(data)
        torn[sector:sector + SECTOR] = bytes(SECTOR)
        log.write_bytes(torn)
        with MessageStore.open(image, readonly=True, **SMALL) as store:
            found = content(store)
        last = sum(p.offset + p.size <= sector for p in places)         # those that the sector does not touch
        hurt = next((p for p in places if torn[p.offset:p.offset + p.size] != data[p.offset:p.offset + p.size]), None)
        assert found == whole[:len(found)], (sector, last)
        assert len(found) >= last and (hurt is None or len(found) <= places.index(hurt)), (sector, last)


@pytest.mark.parametrize("torn", ["topic", "properties"])
def test_it_is_cut_and_goes_on(tmp_path, torn):
    topic = "T" * 120
    properties = {"name": "v" * 1000} if torn == "properties" else None
    for pad in range(0, SECTOR, 100):
        messages = [("First", b"x" * pad, None), (topic, b"", properties), ("Last", b"y", None)]
        image, log, places = killed(tmp_path / f"{pad}", messages)
        data = bytearray(log.read_bytes())
        begin = data.index((topic if torn == "topic" else "name\1").encode())
        end = begin + 120 if torn == "topic" else places[2].offset
        sector = -(-begin // SECTOR) * SECTOR
        if sector < end:
            break
    assert places[1].offset < sector < end
    data[sector:sector + SECTOR] = bytes(SECTOR)
    log.write_bytes(data)
    with MessageStore.open(image, **SMALL) as store:
        assert [m.topic for m in store.scan()] == ["First"] and store.max_log_offset == places[1].offset
        assert store.put("T", b"goes on").offset == places[1].offset


def test_a_record_without_properties_on_a_sector_s_edge_is_whole(tmp_path):
    """The length of its properties, zero, is all that lies in the next sector."""
    for more in range(3):
        with MessageStore.open(tmp_path / f"{more}", **SMALL) as store:
            fixed = store.put("T", b"").size
        root = tmp_path / f"s{more}"
        image, log, places = killed(root, [("T", b"x" * (SECTOR - fixed + 2 - more), None)])
        data = log.read_bytes()
        tags = len(b"TAGS\1a tag\2")
        # without the tags that `killed` gives
        bare = data[:places[0].size - tags - 2] + bytes(2)
        bare = len(bare).to_bytes(4, "big") + bare[4:]
        log.write_bytes(bare.ljust(len(data), b"\0"))
        with MessageStore.open(image, **SMALL) as store:
            assert [m.properties for m in store.scan()] == [{}]


@pytest.mark.untraced       # a record is put into the file that the trace made
@pytest.mark.parametrize("rest", [1, 4, 7])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_a_record_that_leaves_no_room_for_the_end_of_its_file(tmp_path, rest, clean, write_path):
    """No store of this format leaves such a one. It is served, and the next one goes into the next file, not behind the map."""
    root = tmp_path / "s"
    size = 16384
    options = SMALL | {"segment_size_bytes": size, "message_size_max_bytes": 8000, "write_path": write_path}
    with MessageStore.open(root, **options) as store:
        fixed = store.put("T", b"").size
        last = store.put("T", b"x" * 4000)
    log = root / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    record = bytes(data[:fixed])
    assert last.offset == fixed
    at = last.offset
    body = b"y" * (size - rest - at - fixed)
    head = record[:record.index(b"\1T") - 4]
    new = head + struct.pack(">i", len(body)) + body + record[record.index(b"\1T"):]
    new = struct.pack(">i", len(new)) + new[4:8] + struct.pack(">i", zlib.crc32(body) & 0x7FFFFFFF) + new[12:20] + (
        struct.pack(">qq", 1, at)) + new[36:]
    assert at + len(new) == size - rest
    log.write_bytes((bytes(data[:at]) + new).ljust(size, b"\0"))
    shutil.rmtree(root / "consumequeue")
    if not clean:
        (root / "abort").write_bytes(b"")
    with MessageStore.open(root, **options) as store:
        assert [len(m.body) for m in store.scan("T", 0)] == [0, len(body)]
        assert store.put("T", b"next").offset == size
        assert store.wait_dispatched(30) and [len(m.body) for m in store.scan("T", 0)] == [0, len(body), 4]
        assert store.stats()["unreadable_records"] == 0 and [len(m.body) for m in store.scan()] == [0, len(body), 4]
    with MessageStore.open(root, **options) as store:
        assert [len(m.body) for m in store.scan("T", 0)] == [0, len(body), 4]


def strange(i):
    """A message like any other, but for the fifth: its property holds more NULs than a sector has bytes."""
    return ("T", b"%d" % i, {"name": "\0" * 1100 if i == 5 else "v"})


@pytest.mark.parametrize("lost", ["no checkpoint", "queues ahead", "record_crc"])
def test_a_message_with_nuls_ends_no_log_where_nothing_tells_what_is_flushed(tmp_path, lost):
    """A checkpoint that is gone, or whose time of the queues is ahead of the log; and what has a checksum needs no guess."""
    crc = {"record_crc": True, "record_crc_required": True} if lost == "record_crc" else {}
    live, image = tmp_path / "live", tmp_path / "image"
    io = ProbeIo(keep_bytes=False)
    io.set_clock(1_700_000_000_000, 10_000)         # each message ten seconds after the one before
    with MessageStore.open(live, _io=io, **SMALL | crc) as store:
        for i in range(40):
            store.put("T", b"%d" % i, properties=strange(i)[2])
        store.wait_dispatched(30)
        store.flush()
        last = max(m.store_timestamp for m in store.scan())
        take_image(live, image)
    if lost == "no checkpoint":
        (image / "checkpoint").unlink()
    elif lost == "queues ahead":
        data = bytearray((image / "checkpoint").read_bytes())
        data[:16] = struct.pack(">qq", last, last + 1)
        (image / "checkpoint").write_bytes(data)
    with MessageStore.open(image, **SMALL | crc) as store:
        found = [(bytes(m.body), m.properties["name"]) for m in store.scan("T", 0)]
    assert found == [(b"%d" % i, strange(i)[2]["name"]) for i in range(40)]


@pytest.mark.parametrize("killed", [True, False])
def test_an_end_of_file_that_does_not_reach_the_end_is_damage(tmp_path, killed):
    """What follows it is no rest of a file: it is kept aside, and verify names it."""
    root = tmp_path / "s"
    with MessageStore.open(root, segment_size_bytes=1 << 15) as store:
        places = [store.put("T", b"%d" % i * 50).offset for i in range(30)]
        if killed:
            store.flush()
            store.wait_dispatched(10)
            take_image(root, tmp_path / "image")
    root = tmp_path / "image" if killed else root
    with open(root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(places[10] + 4)
        file.write(b"\xcb\xd4\x31\x94")
    assert any(f.kind == "log_hole" and f.offset == places[10] for f in verify(root))
    if killed:
        with MessageStore.open(root) as store:
            assert store.max_log_offset == places[10] and (root / ".salvage").exists()
