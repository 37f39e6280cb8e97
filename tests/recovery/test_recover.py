"""After the night: where the log ends, what is kept aside, and that doing it twice changes nothing."""
import os
import shutil

import pytest

from rmq_store import MessageStore, errors
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
# Files being made by the allocation thread may come and go while a tree is copied.


def crashed(tmp_path, bodies, **options):
    """A copy of a store taken while it runs, everything flushed and dispatched: the image of a kill."""
    live, image = tmp_path / "live", tmp_path / "image"
    with MessageStore.open(live, **SMALL | options) as s:
        places = [s.put("T", body, queue_id=i % 2, keys=f"k{i}") for i, body in enumerate(bodies)]
        s.wait_dispatched(10)
        s.flush()
        take_image(live, image)
    return image, places


def bodies_of(store):
    return [bytes(m.body) for m in store.scan()]


def snapshot(root):
    return {str(p.relative_to(root)): p.read_bytes() for d in ("commitlog", "consumequeue") for p in (root / d).rglob("*")
            if p.is_file()}


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_killed_store_has_everything_and_recovers_the_same_twice(tmp_path, write_path):
    bodies = [b"%d" % i * (i % 90) for i in range(800)]
    image, _places = crashed(tmp_path, bodies, write_path=write_path)
    with MessageStore.open(image, **SMALL) as s:
        assert bodies_of(s) == bodies and s.stats()["recovered"]
        assert s.max_offset("T", 0) == 400 and bytes(s.query_key("T", "k7")[0].body) == bodies[7]
        take_image(image, tmp_path / "again")
        first = snapshot(image)
    with MessageStore.open(tmp_path / "again", **SMALL) as s:
        assert bodies_of(s) == bodies
        assert {k: v for k, v in snapshot(tmp_path / "again").items() if any(v)} == {k: v for k, v in first.items() if any(v)}
        assert s.put("T", b"goes on", queue_id=0).queue_offset == 400


@pytest.mark.parametrize("damage", ["body", "magic", "size", "place", "zeros"])
def test_cut_at_the_first_bad_record_keeps_the_rest_aside(tmp_path, damage):
    bodies = [b"message %d" % i for i in range(20)]
    image, places = crashed(tmp_path, bodies)
    log = image / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    at = places[12].offset
    if damage == "body":
        data[at + 90] ^= 1
    elif damage == "magic":
        data[at + 4] ^= 1
    elif damage == "size":
        data[at:at + 4] = (1 << 30).to_bytes(4, "big")
    elif damage == "place":
        data[at + 35] ^= 1
    else:
        data[at:at + 50] = bytes(50)
    log.write_bytes(data)
    with MessageStore.open(image, **SMALL) as s:
        assert bodies_of(s) == bodies[:12] and s.max_log_offset == at
        assert s.max_offset("T", 0) == 6 and s.max_offset("T", 1) == 6
        assert not s.query_key("T", "k12") and s.query_key("T", "k11")
        assert s.put("T", b"new", queue_id=0).offset == at
        assert s.stats()["cut_bytes"] > 0
    kept = (image / ".salvage" / f"{at:020d}").read_bytes()
    assert kept == bytes(data[at:places[-1].offset + places[-1].size])


def test_a_torn_tail_is_kept_too(tmp_path):
    image, places = crashed(tmp_path, [b"x" * 100] * 5)
    log = image / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    last = places[-1]
    data[last.offset + 60:last.offset + last.size] = bytes(last.size - 60)
    log.write_bytes(data)
    with MessageStore.open(image, **SMALL) as s:
        assert len(bodies_of(s)) == 4 and s.put("T", b"y").offset == last.offset
    assert (image / ".salvage" / f"{last.offset:020d}").read_bytes() == bytes(data[last.offset:last.offset + 60])


def test_files_behind_the_end_are_dropped(tmp_path):
    bodies = [b"x" * 1000] * 200
    image, places = crashed(tmp_path, bodies)
    files = sorted((image / "commitlog").iterdir())
    assert len(files) > 3
    second = files[1]
    with second.open("r+b") as f:
        f.write(b"\xff" * 100)
    with MessageStore.open(image, **SMALL) as s:
        assert s.max_log_offset == int(second.name)
        assert [p.name for p in sorted((image / "commitlog").iterdir())][:2] == [files[0].name, second.name]
        assert s.put("T", b"on").offset == int(second.name)
        assert len(bodies_of(s)) == sum(p.offset < int(second.name) for p in places) + 1
    with MessageStore.open(image, **SMALL) as s:
        assert bodies_of(s)[-1] == b"on"


def test_a_file_of_wrong_length_refuses_to_load(tmp_path):
    image, _ = crashed(tmp_path, [b"x" * 1000] * 100)
    last = sorted((image / "commitlog").iterdir())[-1]
    os.truncate(last, 1000)
    with pytest.raises(errors.StoreRefusesToLoad, match=last.name):
        MessageStore.open(image, **SMALL)
    os.truncate(last, 0)        # an empty last one is what a crash leaves: removed
    MessageStore.open(image, **SMALL).close()


def test_lost_queues_index_and_checkpoint_are_built_again(tmp_path):
    bodies = [b"%d" % i for i in range(300)]
    image, _ = crashed(tmp_path, bodies)
    shutil.rmtree(image / "consumequeue")
    shutil.rmtree(image / "index")
    (image / "checkpoint").unlink()
    with MessageStore.open(image, **SMALL) as s:
        assert s.max_offset("T", 1) == 150 and bytes(s.query_key("T", "k299")[0].body) == b"299"
        assert [bytes(m.body) for m in s.scan("T", 1)] == bodies[1::2]


def test_lost_log_empties_the_queues(tmp_path):
    image, _ = crashed(tmp_path, [b"x"] * 50)
    for p in (image / "commitlog").iterdir():
        p.unlink()
    with MessageStore.open(image, **SMALL) as s:
        assert s.max_offset("T", 0) == 0 and bodies_of(s) == [] and s.put("T", b"y").offset == 0


def test_readonly_on_a_dirty_store_clamps_and_changes_nothing(tmp_path):
    bodies = [b"message %d" % i for i in range(20)]
    image, places = crashed(tmp_path, bodies)
    log = image / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[places[12].offset + 90] ^= 1
    log.write_bytes(data)
    before = snapshot(image)
    with MessageStore.open(image, readonly=True, **SMALL) as s:
        assert s.stats()["needs_recovery"] and s.max_offset("T", 0) == 6
        assert bodies_of(s) == bodies[:12]
    assert snapshot(image) == before and (image / "abort").exists()
    shutil.rmtree(image / "consumequeue")
    with MessageStore.open(image, readonly=True, **SMALL) as s:     # not queued: reached by the walk over the log
        assert bodies_of(s) == bodies[:12] and s.topics() == []


def test_prezeroed_files_lose_nothing(tmp_path):
    for write_path in ("mmap", "pool"):
        for prezero in ("window", "full", "off"):
            root = tmp_path / f"{write_path}-{prezero}"
            bodies = [os.urandom(500 + i % 300) for i in range(2000)]
            with MessageStore.open(root, write_path=write_path, flush_mode="sync", segment_prezero=prezero, **SMALL) as s:
                for i in range(0, 2000, 100):
                    s.put_many("T", bodies[i:i + 100])
            with MessageStore.open(root, **SMALL) as s:
                assert bodies_of(s) == bodies


def test_stale_time_never_runs_backwards(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        last = s.put("T", b"x").store_timestamp
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.put("T", b"y").store_timestamp >= last


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_last_record_whose_properties_were_cut_off_at_a_block_was_never_stored(tmp_path, blocks):
    """A killed process leaves whole blocks: the body may be there with a good checksum, and half of the properties."""
    live, image = tmp_path / "live", tmp_path / "image"
    with MessageStore.open(live, **SMALL) as s:
        first = s.put("T", b"whole", keys="k", properties={"a": "x" * 100})
        body = b"b" * (4096 * blocks - first.size - 400)
        torn = s.put("T", body, keys="k", properties={"a": "y" * 5000})
        s.flush()
        take_image(live, image)
    log = image / "commitlog" / ("0" * 20)
    data = log.read_bytes()
    assert torn.offset + torn.size - 5000 < 4096 * blocks < torn.offset + torn.size - 4096
    whole_blocks = [data[:n].ljust(len(data), b"\0") for n in range(4096 * blocks, torn.offset + torn.size, 4096)]
    assert len(whole_blocks) == 2
    for cut in whole_blocks:
        log.write_bytes(cut)
        shutil.rmtree(image / "consumequeue", ignore_errors=True)
        with MessageStore.open(image, **SMALL) as s:
            assert bodies_of(s) == [b"whole"] and s.max_log_offset == torn.offset
        (image / "abort").write_bytes(b"")
    log.write_bytes(data)
    with MessageStore.open(image, **SMALL) as s:
        assert bodies_of(s) == [b"whole", body] and s.get("T", 0, 1).messages[0].properties["a"] == "y" * 5000
