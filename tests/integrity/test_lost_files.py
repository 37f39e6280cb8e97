"""A file of the log that is lost, or has another length: repair bridges it, and says what is lost; what is whole stays."""
import json
import os
import shutil

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.integrity.repair import repair
from rmq_store.services.integrity.undoing import undo
from tests.integrity.test_undo import shape

SIZE = 1 << 14
SMALL = {"segment_size_bytes": SIZE, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
pytestmark = pytest.mark.untraced       # files are changed behind the trace's back

LOST = {    # number of the file -> bytes that are left; None: it is gone
    "one": {2: None}, "two in a row": {2: None, 3: None}, "two apart": {1: None, 4: None}, "short": {2: 5000},
    "newest but one": {-2: None}, "newest but one, short": {-2: 9000}, "empty": {2: 0}, "empty, newest but one": {-2: 0},
    "longer": {2: SIZE + 4096}, "longer, the newest": {-1: SIZE + 1}, "oldest short": {0: 1000}, "oldest empty": {0: 0},
    "oldest empty, next gone": {0: 0, 1: None}, "short by a byte": {1: SIZE - 1}, "odd ones": {1: 10, 2: None, 3: SIZE + 5},
}


def filled(root, body=200, count=400, **options):
    """Puts, by topic, queue and queue offset; the queue U/7 has messages in one file of the log alone."""
    found = {}
    with MessageStore.open(root, **SMALL, **options) as store:
        for i in range(count):
            topic, queue = ("U", 7) if body and 2 * SIZE < store.max_log_offset < 2 * SIZE + 9000 and i % 5 == 0 else (
                "TU"[i % 2], i % 3)
            put = store.put(topic, (b"%d." % i) + b"x" * body, queue_id=queue, **({"keys": f"k{i}"} if body else {}))
            found[topic, queue, put.queue_offset] = put.offset, put.size, i
        store.flush()
    return found


def lose(root, lost):
    """Returns the stretches of the log that are gone."""
    files, gone = sorted((root / "commitlog").iterdir()), []
    for number, length in lost.items():
        path = files[number]
        start = int(path.name)
        if length is None:
            path.unlink()
        else:
            with path.open("r+b") as file:
                file.truncate(length)
                if length > SIZE:
                    file.seek(SIZE)
                    file.write(b"\xff" * (length - SIZE))
        gone.append((start + min(length or 0, SIZE), start + SIZE))
    return gone


def whole(puts, gone):
    return {place: i for place, (at, size, i) in puts.items() if not any(a < at + size and at < b for a, b in gone)}


def read(root, **options):
    """(numbers of messages, places of tombstones) by topic, queue and queue offset."""
    found, stones = {}, set()
    with MessageStore.open(root, readonly=True, **options) as store:
        for topic in store.topics():
            for queue in store.queues(topic):
                for n, m in enumerate(store.scan(topic, queue), store.min_offset(topic, queue)):
                    assert n == m.queue_offset or topic[0] == "%"
                    if "DAMAGED" in m.properties or not len(m.body):
                        stones.add((topic, queue, n))
                    else:
                        found[topic, queue, n] = int(bytes(m.body).split(b".")[0])
    return found, stones


def fix(root, **options):
    return repair(root, dry_run=False, open_store=MessageStore.open, **options)


@pytest.mark.parametrize("what, killed", [*((what, False) for what in LOST), ("one", True), ("empty, newest but one", True)])
def test_what_is_whole_stays_and_what_is_lost_is_said(tmp_path, what, killed):
    root, lost = tmp_path / "s", LOST[what]
    puts = filled(root)
    if killed:
        (root / "abort").touch()
    gone = lose(root, lost)
    left = whole(puts, gone)
    before = shape(root)
    planned = repair(root, dry_run=True)
    assert shape(root) == before and not (root / ".salvage").exists()
    done = fix(root)
    assert [s.kind for s in done.steps] == [s.kind for s in planned.steps] and done.left == []
    assert [s.lost for s in done.steps] == [s.lost for s in planned.steps]
    rows = [row for s in done.steps for row in s.lost or ()]
    said = {(row["topic"], row["queue_id"], n) for row in rows for n in range(row["begin"], row["end"])}
    assert said == set(puts) - set(left) and sum(s.count or 0 for s in done.steps) == len(said)
    assert read(root) == (left, said)
    assert list(rmq_store.verify(root)) == []
    with MessageStore.open(root) as store:
        for topic, queue in {place[:2] for place in puts}:
            assert store.max_offset(topic, queue) == 1 + max(n for t, q, n in puts if (t, q) == (topic, queue))
        i = max(left.values())
        assert len(store.query_key("TU"[i % 2], f"k{i}")) == 1
    undo(root, say=lambda step, path: None, open_store=MessageStore.open)
    assert shape(root) == before
    assert fix(root).left == [] and read(root) == (left, said)
    with MessageStore.open(root) as store:
        assert store.put("T", b"1000.", queue_id=0).queue_offset == 1 + max(n for t, q, n in puts if (t, q) == ("T", 0))


@pytest.mark.parametrize("what", ["one", "two in a row", "newest but one", "short"])
def test_without_queues_the_gaps_between_records_tell(tmp_path, what):
    root = tmp_path / "s"
    puts = filled(root)
    gone = lose(root, LOST[what])
    shutil.rmtree(root / "consumequeue")
    left = whole(puts, gone)
    assert fix(root).left == []
    found, stones = read(root)
    assert found == left
    with_later = {place for place in set(puts) - set(left) if any(p[:2] == place[:2] and p[2] > place[2] for p in left)
                  and any(p[:2] == place[:2] and p[2] < place[2] for p in left)}
    assert stones == with_later and list(rmq_store.verify(root)) == []


def test_tombstones_of_the_shortest_messages_fit(tmp_path):
    root = tmp_path / "s"
    puts = filled(root, body=0, count=700)
    left = whole(puts, lose(root, {1: None, 3: None}))
    assert len(set(puts) - set(left)) > 300
    assert fix(root).left == []
    assert read(root) == (left, set(puts) - set(left))


def test_light_queues_keep_their_places(tmp_path):
    root = tmp_path / "s"
    light = {"enable_lmq": True, "enable_multi_dispatch": True}
    puts = {}
    with MessageStore.open(root, **SMALL, **light) as store:
        for i in range(300):
            put = store.put("T", b"%d." % i + b"x" * 200, properties={"INNER_MULTI_DISPATCH": f"%LMQ%a{i % 2},%LMQ%b"})
            puts["T", 0, put.queue_offset] = puts[f"%LMQ%a{i % 2}", 0, i // 2] = puts["%LMQ%b", 0, i] = put.offset, put.size, i
    left = whole(puts, lose(root, {2: None}))
    done = fix(root)
    assert done.left == []
    assert read(root) == (left, set(puts) - set(left))
    (rows,) = [s.lost for s in done.steps if s.lost]
    assert {row["topic"] for row in rows} == {"T", "%LMQ%a0", "%LMQ%a1", "%LMQ%b"}


def test_batch_queues_keep_their_places(tmp_path):
    root = tmp_path / "s"
    puts = {}
    with MessageStore.open(root, **SMALL, batch_consumequeue_file_size_bytes=4600) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        for i in range(200):
            put = store.put_inner_batch("B", [b"%d." % n + b"x" * 90 for n in range(3 * i, 3 * i + 3)])
            for n in range(3 * i, 3 * i + 3):
                puts["B", 0, n] = put.offsets[0], 1, n
        assert store.wait_dispatched(10)
    (_, end), = lose(root, {2: None})
    lost = {at for at, _, _ in puts.values() if end - SIZE <= at < end}
    left = {place: n for place, (at, _, n) in puts.items() if at not in lost}
    assert fix(root).left == [] and 300 < len(left) < 600
    found, stones = read(root)
    assert found == left and stones == set(puts) - set(left)


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("undone", [False, True], ids=["repair", "undo"])
def test_killed_at_any_change_it_can_be_done_again(tmp_path, step, undone):
    base = tmp_path / "base"
    puts = filled(base, count=200)
    left = whole(puts, lose(base, {0: SIZE + 7, 1: None, 2: 3000}))
    before = shape(base)
    if undone:
        fix(base)
    for n in range(1, 200, step):
        root = tmp_path / f"c{n}"
        shutil.copytree(base, root)
        io = ProbeIo(keep_bytes=False)
        io.freeze("mutate", n)
        try:
            if undone:
                undo(root, say=lambda step, path: None, open_store=MessageStore.open, _io=io)
            else:
                repair(root, dry_run=False, open_store=MessageStore.open, _io=io)
        except (errors.RmqStoreError, OSError):
            pass
        if undone and not list((root / ".salvage").glob("repair-*.undone")):
            undo(root, say=lambda step, path: None, open_store=MessageStore.open)
        assert not undone or shape(root) == before
        assert fix(root).left == []
        assert read(root) == (left, set(puts) - set(left))
        shutil.rmtree(root)
        if not io.frozen:
            break
    assert n > 20


def test_the_command(tmp_path, rmqstore):
    root = tmp_path / "s"
    puts = filled(root)
    gone = lose(root, {2: None})
    count = len(puts) - len(whole(puts, gone))
    code, out, _ = rmqstore("repair", root, "--dry-run")
    path = root / "commitlog" / f"{2 * SIZE:020d}"
    assert code == 1 and f"would replace: {path} at {2 * SIZE}: the file is not there" in out and f"({count} messages)" in out
    assert "lost: " in out and "U/7 0 to " in out and not path.exists()
    code, out, _ = rmqstore("repair", root, "--json")
    assert code == 0
    lost = next(row["lost"] for row in map(json.loads, out.splitlines()) if "lost" in row)
    assert {"topic": "U", "queue_id": 7, "begin": 0, "end": sum(p[:2] == ("U", 7) for p in puts)} in lost
    assert rmqstore("repair", root, "--dry-run")[:2] == (0, "nothing to repair\n")
    assert rmqstore("repair", root, "--undo")[0] == 0 and not path.exists()


@pytest.mark.parametrize("back", [1, 3, 20])
@pytest.mark.parametrize("number", [2, -1])
def test_a_record_that_lost_its_last_properties_is_lost(tmp_path, number, back):
    """No checksum covers them: with zeros in their place it would look whole."""
    root = tmp_path / "s"
    puts = filled(root)
    start = int(sorted((root / "commitlog").iterdir())[number].name)
    place, (at, size, _) = next((k, v) for k, v in puts.items() if v[0] > start + 3000)
    gone = lose(root, {number: at + size - back - start})
    left = whole(puts, gone)
    assert place not in left
    before = {k: v for k, v in left.items() if k[0] == place[0]}
    with MessageStore.open(root, readonly=True, skip_holes=True) as store:
        assert {(m.topic, m.queue_id, m.queue_offset) for m in store.scan() if m.topic == place[0]} == set(before)
        assert place[2] not in [m.queue_offset for m in store.scan(*place[:2])]
    assert fix(root).left == []
    assert read(root)[0] == left and place not in read(root)[0]


@pytest.mark.parametrize("length", [None, 0, 5000])
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_the_newest_is_lost_and_one_was_made_ahead(tmp_path, length, killed):
    root = tmp_path / "s"
    puts = filled(root)
    newest = sorted((root / "commitlog").iterdir())[-1]
    with open(root / "commitlog" / f"{int(newest.name) + SIZE:020d}", "wb") as file:
        file.truncate(SIZE)
    if killed:
        (root / "abort").touch()
    left = whole(puts, lose(root, {-2: length}))
    with MessageStore.open(root, readonly=True, skip_holes=True) as store:
        assert {(m.topic, m.queue_id, m.queue_offset) for m in store.scan()} == set(left)
    done = fix(root)
    assert done.left == [] and read(root)[0] == left
    rows = [row for s in done.steps for row in s.lost or ()]
    said = {(row["topic"], row["queue_id"], n) for row in rows for n in range(row["begin"], row["end"])}
    assert said == set(puts) - set(left)


def test_a_file_under_another_files_name_is_no_lost_file(tmp_path):
    root = tmp_path / "s"
    filled(root)
    files = sorted((root / "commitlog").iterdir())
    files[0].rename(root / "commitlog" / f"{int(files[-1].name) + 3 * SIZE:020d}")
    before = shape(root)
    assert "replace" not in {s.kind for s in repair(root, dry_run=True).steps} and shape(root) == before


def test_the_names_tell_the_size_where_one_of_two_files_is_short(tmp_path):
    root = tmp_path / "s"
    puts = filled(root, count=90)
    (root / "config" / "storeOptions.json").unlink()        # as a broker's store, which has none
    left = whole(puts, lose(root, {0: 6000}))
    assert len(list((root / "commitlog").iterdir())) == 2
    assert fix(root).left == [] and read(root) == (left, set(puts) - set(left))


def test_a_name_that_no_file_of_this_log_has_is_no_lost_file(tmp_path):
    root = tmp_path / "s"
    filled(root)
    far = root / "commitlog" / f"{10_000 * SIZE:020d}"
    os.rename(sorted((root / "commitlog").iterdir())[-1], far)
    before = shape(root)
    assert {s.kind for s in repair(root, dry_run=True).steps} >= {"none"}
    assert shape(root) == before


ODD = ["link", "dangling", "directory", "full directory", "pipe"]


def put_in_place(path, kind, away):
    """What stood at `path` lies at `away` then."""
    shutil.move(path, away)
    if kind in ("link", "dangling"):
        path.symlink_to(away if kind == "link" else "/nonexistent/disk/file")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
        if kind == "full directory":
            (path / "x").write_text("precious")


@pytest.mark.parametrize("number, kind", [*((1, kind) for kind in ODD), (0, "link"), (-1, "pipe")])
def test_what_stands_in_the_place_of_a_file_is_not_a_lost_file(tmp_path, rmqstore, number, kind):
    """A file on another disk, behind a link, is whole: tombstones would take its place, and no copy would be left."""
    root = tmp_path / "s"
    filled(root)
    path = sorted((root / "commitlog").iterdir())[number]
    put_in_place(path, kind, tmp_path / "away")
    os.truncate(sorted((root / "commitlog").iterdir())[3], 2000)      # and something that can be repaired
    before = shape(root)
    found = {"pipe": "a FIFO", "dangling": "a link to /nonexistent", "link": f"a link to {tmp_path}"}.get(kind, "a directory")
    with pytest.raises(errors.StoreRefusesToLoad) as caught:
        MessageStore.open(root)
    assert found in str(caught.value) and "repair" not in str(caught.value)
    for arguments in ((), ("--dry-run",)):
        code, _, err = rmqstore("repair", root, *arguments)
        assert code == 2 and f"{path}: expected a regular file, found {found}" in err and "into its place" in err
    assert shape(root) == before and not (root / ".salvage").exists() and os.path.lexists(path)
    assert "move it away; RocketMQ" not in rmqstore("verify", root)[1]
    path.rmdir() if "dir" in kind and not list(path.iterdir()) else None
    if kind in ("link", "dangling", "pipe"):
        path.unlink()
    if not path.exists():
        shutil.move(tmp_path / "away", path)
        assert rmqstore("repair", root)[0] == 0


@pytest.mark.parametrize("place, kind", [
    ("consumequeue", "link"), ("consumequeue/T", "pipe"), ("consumequeue/T/0", "link"), ("consumequeue/T/0/0", "link"),
    ("consumequeue/T/0/0", "pipe"), ("index", "link"), ("index/*", "pipe"), ("config", "link"),
    ("config/storeOptions.json", "link")])
def test_nor_is_it_a_directory_of_the_store(tmp_path, rmqstore, place, kind):
    root = tmp_path / "s"
    filled(root)
    path = root / place.replace("0/0", "0/" + "0" * 20)
    path = next(root.glob("index/*")) if "*" in place else path
    sorted((root / "commitlog").iterdir())[1].unlink()
    put_in_place(path, kind, tmp_path / "away")
    before = shape(root)
    code, _, err = rmqstore("repair", root)
    assert code in (2, 3) and str(path) in err and ("link" in err if kind == "link" else True)
    assert shape(root) == before and os.path.lexists(path) and not (root / ".salvage").exists()


def test_a_dry_run_without_room_names_the_cure(tmp_path, monkeypatch):
    root, small = tmp_path / "s", tmp_path / "small"
    small.mkdir()
    filled(root)
    lose(root, LOST["short"])
    monkeypatch.setattr("tempfile.tempdir", str(small))
    io = ProbeIo(keep_bytes=False)
    io.fail("pwrite", errno=28, path="rmqstore-repair-")
    with pytest.raises(errors.DiskFull, match=f"{small}/rmqstore-repair-.*TMPDIR"):
        repair(root, dry_run=True, _io=io)
    assert list(small.iterdir()) == []
