"""Repair: what is behind damage is kept, offsets of queues stay, nothing is deleted, and a dry run writes nothing."""
import itertools
import os
import shutil

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.integrity import bridging
from rmq_store.services.integrity.repair import repair
from tests import golden_store
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
COUNT = 600


@pytest.fixture
def root(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        for i in range(COUNT):
            s.put(f"T{i % 2}", b"message %d" % i * 20, queue_id=i % 3, tags=f"t{i}", keys=f"k{i}")
    return tmp_path / "s"


@pytest.fixture
def places(root):
    with MessageStore.open(root, readonly=True) as s:
        return [(m.offset, m.size) for m in s.scan()]


def patch(root, offset, data):
    fd = os.open(root / "commitlog" / f"{offset // 65536 * 65536:020d}", os.O_RDWR)
    os.pwrite(fd, data, offset % 65536)
    os.close(fd)


def fix(root, **more):
    return repair(root, dry_run=False, open_store=MessageStore.open, **more)


def tree(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def readable(root):
    """Numbers of the messages that can be read by queue, and of the queue offsets that hold tombstones."""
    with MessageStore.open(root) as s:
        found = {}
        for topic, queue in itertools.product(s.topics(), range(3)):
            for m in s.scan(topic, queue):
                found[topic, queue, m.queue_offset] = None if "DAMAGED" in m.properties else bytes(m.body)
        return found


def expected(lost):
    return {(f"T{i % 2}", i % 3, i // 6): None if i in lost else b"message %d" % i * 20 for i in range(COUNT)}


@pytest.mark.parametrize("lost, damage", [
    ([100], lambda at: (at[100][0] + 95, b"\xff")),                                 # a body
    ([100], lambda at: (at[100][0], bytes(90))),                                    # a header
    ([100, 101, 102], lambda at: (at[100][0] + 4, bytes(at[102][0] - at[100][0] + 8))),
    ([100], lambda at: (at[100][0] + 4, b"\0")),                                    # the magic code
    ([0], lambda at: (at[0][0] + 95, b"\xff")),
    (range(100, 130), lambda at: (at[100][0], b"\xff" * (at[130][0] - at[100][0]))),
])
def test_what_follows_damage_is_kept_at_its_place(root, places, lost, damage):
    patch(root, *damage(places))
    before = tree(root)
    dry = repair(root, dry_run=True)
    assert [s.kind for s in dry.steps] == ["bridge", "rebuild"] and tree(root) == before
    result = fix(root)
    assert [s.kind for s in result.steps] == ["bridge", "rebuild"] and result.left == []
    found = readable(root)
    assert {k: v for k, v in found.items() if v is not None} == {k: v for k, v in expected(lost).items() if v is not None}
    stones = [k for k, v in found.items() if v is None]
    assert stones == [] if lost == [0] else sorted(stones) == sorted(k for k, v in expected(lost).items() if v is None)
    with MessageStore.open(root) as s:
        assert s.query_key("T1", "k599") and not s.query_key(f"T{lost[0] % 2}", f"k{lost[0]}")
        assert s.put("T0", b"goes on", queue_id=0).queue_offset == 100
    at = places[lost[0]][0]
    kept = next((root / ".salvage").glob(f"{at:020d}.damaged")).read_bytes()
    assert kept == before[f"commitlog/{at // 65536 * 65536:020d}"][at % 65536:at % 65536 + len(kept)]
    assert list(rmq_store.verify(root)) == []


def test_damage_over_the_end_of_a_file(root, places):
    last = max(i for i, (at, _) in enumerate(places) if at < 65536)
    patch(root, places[last - 1][0], bytes(65536 - places[last - 1][0]))
    result = fix(root)
    assert [s.kind for s in result.steps] == ["bridge", "rebuild"] and result.left == []
    assert readable(root) == expected([last - 1, last])


def test_damage_that_is_the_last_of_its_queue(root, places):
    patch(root, places[597][0] + 95, b"\xff")
    assert fix(root).left == []
    assert readable(root) == expected([597])


def test_queues_and_index_are_built_again(root):
    before = tree(root)
    queue = root / "consumequeue" / "T1" / "1" / f"{0:020d}"
    queue.write_bytes(os.urandom(2000))
    os.truncate(sorted((root / "index").iterdir())[0], 100)
    sizes = {"index_slots": 100, "index_entries_max": 1000}
    result = fix(root, **sizes)
    assert [s.kind for s in result.steps] == ["rebuild"] and result.left == []
    after = tree(root)
    for name, data in before.items():
        if name.startswith("consumequeue/"):
            assert after[name] == data
    assert readable(root) == expected([])
    aside = next((root / ".salvage").glob("rebuilt-*"))
    assert len((aside / "consumequeue" / "T1" / "1" / f"{0:020d}").read_bytes()) == 2000


@pytest.mark.parametrize("case", ["v4-crash-shortfile", "v5-crash-shortfile"])
def test_a_short_file_before_one_made_ahead_gets_its_length_back(tmp_path, case):
    """As a broker leaves it, which makes its next file ahead: there was no cure."""
    root = golden_store.unpack(case, tmp_path).store
    last, ahead = sorted((root / "commitlog").iterdir())[-2:]
    length = last.stat().st_size
    with pytest.raises(errors.StoreRefusesToLoad, match="repair"):
        MessageStore.open(root, readonly=True)
    assert [(s.kind, s.path) for s in repair(root, dry_run=True).steps if s.kind != "rebuild"] == [("extend", str(last))]
    with open(ahead, "r+b") as file:
        file.seek(1000)
        file.write(b"x")
    assert "replace" in {s.kind for s in repair(root, dry_run=True).steps}      # the length alone is no longer all of it
    with open(ahead, "r+b") as file:
        file.write(bytes(1001))
    assert fix(root).left == [] and last.stat().st_size == 65536 > length
    with MessageStore.open(root, readonly=True) as store:
        assert store.max_log_offset > int(last.name) and store.cut_bytes == 0
        assert [bytes(m.body) for m in store.scan()]


def test_a_short_last_file_gets_its_length_back(root, places):
    last = sorted((root / "commitlog").iterdir())[-1]
    n = next(i for i, (at, _) in enumerate(places) if at > int(last.name))
    os.truncate(last, places[n][0] + 50 - int(last.name))
    with pytest.raises(errors.StoreRefusesToLoad):
        MessageStore.open(root, **SMALL)
    assert repair(root, dry_run=True).steps[0].kind == "extend"
    result = fix(root)
    assert result.steps[0].kind == "extend" and result.left == []
    found = readable(root)
    assert found == {k: v for k, v in expected([]).items() if k in found} and len(found) == n


@pytest.mark.untraced       # a file that the trace made is emptied behind its back
@pytest.mark.parametrize("only", [False, True])
def test_an_empty_last_file_goes(root, only):
    files = sorted((root / "commitlog").iterdir())
    for file in files[1 if only else len(files):]:
        file.unlink()
    last = files[0 if only else -1]
    os.truncate(last, 0)
    if only:            # its queues lead to a log that is not there: another disk may have it
        with pytest.raises(errors.LogDirectoryMissing, match="commitlog_loss_accepted"):
            repair(root, dry_run=True, **SMALL)
    lost = {"commitlog_loss_accepted": True} if only else {}
    assert [s.kind for s in repair(root, dry_run=True, **SMALL, **lost).steps][:1] == ["remove"] and last.exists()
    result = fix(root, **SMALL, **lost)
    assert result.steps[0].kind == "remove" and result.left == [] and not (last.exists() and last.stat().st_size == 0)
    with MessageStore.open(root, **lost) as s:
        assert s.put("T0", b"on it goes").status == 0


def test_messages_that_a_recovery_cut_off_are_put_again(root, places):
    patch(root, places[500][0] + 95, b"\xff")
    (root / "abort").write_bytes(b"")
    with MessageStore.open(root, **SMALL) as s:
        assert s.cut_bytes > 0 and s.max_log_offset == places[500][0]
        s.put("T0", b"new", queue_id=0)
    dry = repair(root, dry_run=True, restore=True)
    assert sum(s.count for s in dry.steps if s.kind == "restore") == 99
    result = fix(root, restore=True)
    assert result.left == [] and sum(s.count for s in result.steps if s.kind == "restore") == 99
    with MessageStore.open(root) as s:
        bodies = [bytes(m.body) for m in s.scan()]
        assert sorted(bodies) == sorted([b"message %d" % i * 20 for i in range(COUNT) if i != 500] + [b"new"])
        m = s.query_key("T1", "k599")[0]
        assert m.tags == "t599" and m.queue_id == 599 % 3
    assert fix(root, restore=True).steps == []


def test_what_cannot_be_repaired_is_said(root, places):
    os.rename(sorted((root / "commitlog").iterdir())[-1], root / "commitlog" / f"{10_000 << 16:020d}")
    result = repair(root, dry_run=True)
    assert "none" in [s.kind for s in result.steps]


def test_an_open_store_is_left_alone(root):
    with MessageStore.open(root, **SMALL), pytest.raises(errors.StoreLocked):
        fix(root)


def test_a_whole_store_is_left_alone(root):
    before = tree(root)
    assert fix(root).steps == [] and {k: v for k, v in tree(root).items() if k != "lock"} == {
        k: v for k, v in before.items() if k != "lock"}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_broken_off_at_any_call_it_can_be_done_again(root, places, tmp_path, step):
    patch(root, places[100][0] + 95, b"\xff")
    for n in range(1, 60, step):
        copy = tmp_path / f"c{n}"
        take_image(root, copy)
        io = ProbeIo(keep_bytes=False)
        io.freeze("mutate", n)
        try:
            repair(copy, dry_run=False, open_store=MessageStore.open, _io=io, **SMALL)
        except (errors.RmqStoreError, OSError):
            pass
        assert fix(copy, **SMALL).left == []
        assert readable(copy) == expected([100])
        shutil.rmtree(copy)
        if not io.frozen:
            break
    assert n > 8


def test_the_command(root, places, rmqstore):
    patch(root, places[100][0] + 95, b"\xff")
    code, out, _ = rmqstore("repair", root, "--dry-run")
    assert code == 1 and f"would bridge: {root}/commitlog/{0:020d} at {places[100][0]}" in out and "nothing was written" in out
    code, out, _ = rmqstore("repair", root)
    assert code == 0 and "would" not in out and out.endswith("2 steps, 0 findings left\n")
    assert rmqstore("repair", root, "--dry-run")[:2] == (0, "nothing to repair\n")


def test_too_few_bytes_hold_no_tombstone():
    stretch = bridging.Stretch(1000, 1050, False)
    assert bridging.fill(stretch, [], 1) is None
    assert bridging.fill(bridging.Stretch(1000, 1007, True), [], 1) is None
    assert len(bridging.fill(bridging.Stretch(1000, 1300, False), [bridging.Lost("T", 0, 7)], 1)) == 300
    assert bridging.fill(bridging.Stretch(1000, 1300, False), [bridging.Lost("T", 0, n) for n in range(9)], 1) is None


def test_a_header_that_rotted_is_no_reason_to_shift_a_queue(root, places):
    """No checksum covers it: the record claims queue offset 40 and the next one goes on at 18. Nobody knows which lies."""
    patch(root, places[100][0] + 27, bytes([40]))
    before = tree(root)
    found = [f for f in rmq_store.verify(root) if f.severity != "note"]
    assert {f.kind for f in found} == {"queue_other", "queue_wrong"}
    result = fix(root)
    assert {s.kind for s in result.steps} == {"none"} and {f.kind for f in result.left} == {"queue_other", "queue_wrong"}
    assert {k: v for k, v in tree(root).items() if k != "lock"} == {k: v for k, v in before.items() if k != "lock"}


def test_a_header_that_cannot_be_is_bridged(root, places):
    patch(root, places[100][0] + 12, b"\xff\xff\xff\x61")      # a negative queue id
    assert [f.kind for f in rmq_store.verify(root) if f.severity == "corrupt"] == ["record_header"]
    assert [s.kind for s in fix(root).steps] == ["bridge", "rebuild"]
    assert readable(root) == expected([100])


def test_what_stands_behind_the_end_is_cut(root, places):
    end = places[-1][0] + places[-1][1]
    patch(root, end + 500, b"no record")
    assert [f.kind for f in rmq_store.verify(root)] == ["log_tail"]
    assert [s.kind for s in repair(root, dry_run=True).steps] == ["cut"]
    result = fix(root)
    assert [s.kind for s in result.steps] == ["cut"] and result.left == []
    assert readable(root) == expected([])
