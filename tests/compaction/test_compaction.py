"""Compaction topics: the newest message of each key outlives the log, in RocketMQ's files, at its own queue offset."""
import json
import os
import subprocess
import sys
import threading

import pytest

from rmq_store import MessageStore, backup, errors, restore, verify
from rmq_store.services.compaction import files as disk
from rmq_store.services.compaction.log import file_sizes
from rmq_store.services.compaction.table import Table
from rmq_store.status import GetStatus
from tests.compaction import model
from tests.soon import until


def body(store, key):
    return bytes(store.table("C")[key].body)


@pytest.fixture
def store(tmp_path):
    with model.open_store(tmp_path / "s") as made:
        made.topic_table.set_cleanup_policy("C", "COMPACTION")
        yield made


def put(store, first, count, keys=10):
    for i in range(first, first + count):
        store.put("C", b"%06d" % i, keys=f"k{i % keys}", tags="ab"[i % 2])
    store.flush()
    store.wait_dispatched(10)


def gone(store):
    """Cleans the log; the first offset that it still has."""
    store.clean(hours=0, pace_ms=0)
    return store._queues_of("C")[0][1]


# ---- the rule

def test_the_newest_of_each_key_stays(tmp_path):
    """CMP-01, CMP-02 of RocketMQ's CompactionLogTest: 1024 messages, keys 0 to 9 in turn; 10 stay, 1014 to 1023."""
    with model.open_store(tmp_path / "s", compaction_file_size_bytes=1 << 20, compaction_cq_file_size_bytes=46 * 1025) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 1024)
        store.put("C", b"x", keys="other")
        (done,) = store.compact("C")
        assert (done.messages, done.kept) == (1024, 10)
        segments = store._compactions._log("C", 0, False).segments
        found, _, _ = segments.read(store, "C", 0, 0, 1 << 40, 100, 1 << 20)
        assert [m.queue_offset for m in found] == [*range(1014, 1025)]
        assert json.loads((tmp_path / "s/compaction/position-checkpoint").read_text()) == {"queueOffsetMap": {"C_0": 1023}}
        assert store.compact("C") == []


def test_values_outlive_the_log_at_their_offsets(store):
    store.put("C", b"alone", keys="old", tags="a")
    store.put("C", b"deleted", keys="dead")
    store.put("C", b"", keys="dead")
    put(store, 3, 300)
    expected = {key: bytes(m.body) for key, m in store.table("C").items()}
    store.compact()
    low = gone(store)
    assert low > 100
    first = store.get("C", 0, 0)
    assert (first.status, first.min_offset, first[0].queue_offset, bytes(first[0].body)) == (GetStatus.FOUND, 0, 0, b"alone")
    assert (store.min_offset("C", 0), store.max_offset("C", 0)) == (0, 303)
    assert {key: bytes(m.body) for key, m in store.table("C").items()} == expected and "dead" not in expected
    assert not [m for m in model.walked(store) if m[1] == "dead"]
    middle = store.get("C", 0, 1)
    assert middle.status in (GetStatus.FOUND, GetStatus.OFFSET_TOO_SMALL) and 1 < middle.next_offset <= low
    tagged = store.get("C", 0, 0, tags="b")
    assert "old" not in [m.keys for m in tagged] and store.get("C", 0, 0, sql="KEYS = 'old'")[0].keys == "old"
    held = first[0]
    assert bytes(held.copy().body) == b"alone"


def test_what_is_not_compacted_is_fed_before_the_log_is_cleaned(store):
    store.put("C", b"alone", keys="old")
    put(store, 1, 200)
    assert gone(store) > 1 and body(store, "old") == b"alone"
    assert [f[0] for f in model.walked(store)] == [*range(201)]


def test_a_log_that_cannot_be_fed_keeps_the_files(store, monkeypatch):
    put(store, 0, 200)
    def fails(*_):
        raise OSError(5, "Input/output error")
    monkeypatch.setattr(store._compactions._log("C", 0, True), "_feed", fails)
    for _ in range(2):
        with pytest.raises(errors.DurabilityError if _ else OSError):
            store.clean(hours=0)
    assert store._queues_of("C")[0][1] == 0 and store.min_log_offset == 0


def test_a_full_disk_is_tried_again(store, monkeypatch):
    put(store, 0, 50)
    log = store._compactions._log("C", 0, True)
    real = log._feed
    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(log, "_feed", full)
    with pytest.raises(OSError):
        store.compact("C")
    monkeypatch.setattr(log, "_feed", real)
    store.compact("C")
    assert log.segments.bounds() == (0, 49) or log.segments.bounds()[1] == 49


def test_a_map_without_room_keeps_the_rest(tmp_path):
    with model.open_store(tmp_path / "s", compaction_map_bytes=4096) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 240, keys=100)
        expected = {key: bytes(m.body) for key, m in store.table("C").items()}
        kept = [done.kept for _ in range(6) for done in store.compact("C")]
        assert len(kept) > 1 and kept == sorted(kept, reverse=True)     # each time a part
        gone(store)
        assert {key: bytes(m.body) for key, m in store.table("C").items()} == expected


def test_a_message_that_fits_no_file(store):
    store.put("C", bytes(2000), keys="a")
    log = store._compactions._log("C", 0, True)
    assert log.segments.log_size >= 4096
    with model.open_store(str(store.path) + "2", compaction_file_size_bytes=4096, compaction_cq_file_size_bytes=460) as small:
        small.topic_table.set_cleanup_policy("C", "COMPACTION")
        log = small._compactions._log("C", 0, True)
        assert log.segments.log_size == 4140
        log.segments = type(log.segments)(log._files.table, 1000, 460, False)
        small.put("C", bytes(2000), keys="a")
        small.flush()
        small.wait_dispatched(10)
        with pytest.raises(errors.StoreStateError, match="larger than a file of its compaction log"):
            log.feed(small, 0, 1)


def test_a_topic_of_another_policy_is_refused(store):
    with pytest.raises(errors.StoreStateError, match="its cleanup policy is not COMPACTION"):
        store.compact("T")
    assert store.compact() == []


# ---- the files

def test_sizes_are_upstreams(store):
    class Of:
        compaction_file_size_bytes, compaction_cq_file_size_bytes = 104_857_600, 10_485_760
    assert file_sizes(Of) == (104_857_460, 10_485_746)
    Of.compaction_cq_file_size_bytes = 1 << 30
    assert file_sizes(Of) == (5 * ((1 << 30) // 46 * 46), (1 << 30) // 46 * 46)


def test_other_sizes_of_a_directory_are_taken(tmp_path):
    with model.open_store(tmp_path / "s") as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 100)
        store.compact()
    with model.open_store(tmp_path / "s", compaction_file_size_bytes=1 << 20, compaction_cq_file_size_bytes=1 << 16) as store:
        put(store, 100, 100)
        store.compact()
        gone(store)
        assert store.table("C").keys() == {f"k{i}" for i in range(10)}
    sizes = {os.path.getsize(f) for f in (tmp_path / "s/compaction/compactionCq/C/0").iterdir() if f.is_file()}
    assert sizes == {920}


def test_a_queue_that_lost_messages_gets_them_again(tmp_path):
    """A compaction log that is ahead of its queue, as a power cut under a broker leaves it."""
    with model.open_store(tmp_path / "s") as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 95)
        store.compact()
    with model.open_store(tmp_path / "t") as other:
        other.topic_table.set_cleanup_policy("C", "COMPACTION")
        for i in range(70):
            other.put("C", b"%06d" % i if i < 60 else b"other", keys=f"k{i % 10}")
    import shutil
    shutil.copytree(tmp_path / "s/compaction", tmp_path / "t/compaction")
    with model.open_store(tmp_path / "t") as other:
        for i in range(70, 75):
            other.put("C", b"other", keys=f"k{i % 10}")
        other.compact()
        gone(other)
        assert {bytes(m.body) for m in other.table("C").values()} == {b"other"}
        assert [f for f in os.listdir(tmp_path / "t/.salvage") if "compaction" in f]


def test_half_a_pair_is_put_aside_and_a_damaged_record_stops_compaction(tmp_path):
    root = tmp_path / "s"
    with model.open_store(root) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 100)
        store._compactions.feed(store)
    half = root / "compaction/compactionCq/C/0" / f"{10 ** 9:020d}"
    half.write_bytes(bytes(920))
    first = root / "compaction/compactionLog/C/0" / f"{0:020d}"
    content = bytearray(first.read_bytes())
    content[4] ^= 255
    first.write_bytes(content)
    with model.open_store(root) as store:
        with pytest.raises(errors.CorruptionError, match="queue offset 0"):
            store.compact()
        gone(store)
        assert store.get("C", 0, 0).unreadable == 1 and len(store.table("C")) == 10
    assert not half.exists() and len(os.listdir(root / ".salvage")) == 1


def test_a_topic_that_is_deleted_begins_anew(tmp_path, store):
    put(store, 0, 100)
    store.compact()
    store.delete_topics("C")
    assert disk.queues_on_disk(str(store.path)) in ([], [("C", 0)])
    assert not [f for _, _, files in os.walk(os.path.join(store.path, "compaction", "compactionLog")) for f in files]
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    put(store, 0, 50)
    store.compact()
    gone(store)
    assert store.table("C").keys() == {f"k{i}" for i in range(10)}


def test_expired_queues_are_not_those_of_compaction(store):
    put(store, 0, 100)
    store.put_many("T", [bytes(1000)] * 20)
    store.flush()
    store.wait_dispatched(10)
    gone(store)
    assert store._queues_of("C")[0][1:] == (100, 100) and store.clean_expired_queues().removed == []
    assert store.table("C").keys() == {f"k{i}" for i in range(10)} and store.min_offset("C", 0) == 0


# ---- the thread, other processes, switched off

def test_the_thread_feeds_and_close_feeds_the_rest(tmp_path):
    with MessageStore.open(tmp_path / "s", **model.SMALL) as store:
        assert store._compactions.thread is None
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 30)
        until(lambda: (tmp_path / "s/compaction/compactionCq/C/0").is_dir()
              and store._compactions._log("C", 0, False).segments.bounds()[1] == 29)
        put(store, 30, 30)
    with model.open_store(tmp_path / "s", readonly=True) as dead:
        assert dead._compactions._log("C", 0, False).follow().bounds() == (0, 59)
    names = [t.name for t in threading.enumerate()]
    assert "rmq-compact" not in names


def test_switched_off(tmp_path):
    with model.open_store(tmp_path / "s", compaction_enabled=False) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        store.put("C", b"no key")
        put(store, 0, 100)
        gone(store)
        assert not (tmp_path / "s/compaction").exists()


def test_a_policy_that_comes_back_finds_no_old_values(tmp_path, store):
    store.put("C", b"old", keys="a")
    put(store, 1, 100)
    store.compact()
    store.topic_table.set_cleanup_policy("C", "DELETE")
    store.put("C", b"newer", keys="a")
    put(store, 102, 200)
    gone(store)
    assert "a" not in store.table("C") and store.min_offset("C", 0) > 102
    with model.open_store(store.path, readonly=True) as reader:
        assert "a" not in reader.table("C") and reader.min_offset("C", 0) > 102
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    assert "a" not in store.table("C") and os.listdir(tmp_path / "s/.salvage")
    put(store, 302, 100)
    store.compact()
    gone(store)
    assert store.table("C").keys() == {f"k{i}" for i in range(10)}


def test_a_damaged_topics_file_loses_no_value(tmp_path):
    with model.open_store(tmp_path / "s") as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 100)
        store.compact()
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "s/config" / name).write_text("{")
    with model.open_store(tmp_path / "s") as store:
        put(store, 100, 200)
        assert gone(store) > 100
        assert store.table("C").keys() == {f"k{i}" for i in range(10)} and store.min_offset("C", 0) < 100


def test_a_close_that_cannot_feed_still_closes(tmp_path, monkeypatch, caplog):
    with MessageStore.open(tmp_path / "s", **model.SMALL) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 10)
        def full(*_):
            raise OSError(28, "No space left on device")
        monkeypatch.setattr(store._compactions, "feed", full)
    assert "feeding compaction logs" in caplog.text and not (tmp_path / "s/abort").exists()
    with model.open_store(tmp_path / "s") as store:
        store.compact()
        assert store._compactions._log("C", 0, False).segments.bounds() == (0, 9)


def test_a_compaction_while_a_table_reads(store, monkeypatch):
    store.put("C", b"x", keys="dead")
    put(store, 1, 300)
    store.compact()
    store.put("C", b"", keys="dead")
    put(store, 302, 300)
    gone(store)
    assert [m for m in model.walked(store) if m[1:] == ("dead", b"")]       # not compacted, and not in the log
    real, calls = Table._take_older, []
    def take(table, *where):
        found = real(table, *where)
        if not calls:
            calls.append(store.compact("C"))
        return found
    monkeypatch.setattr(Table, "_take_older", take)
    table = store.table("C")
    assert calls[0] and not [m for m in model.walked(store) if m[1] == "dead"]
    assert sorted(table) == sorted(f"k{i}" for i in range(10)) and len(table) == 10


def test_a_follower_reads_what_is_compacted_meanwhile(tmp_path, store):
    put(store, 0, 150)
    store.compact()
    gone(store)
    with MessageStore.open(store.path, readonly=True, follow=True, **model.SMALL) as follower:
        table = follower.table("C")
        for begin in range(150, 375, 75):
            put(store, begin, 75)
            store.compact()
            gone(store)
            assert table.wait(0, begin + 74, 20)
            found = {key: bytes(m.body) for key, m in table.items()}
            assert found == {f"k{i % 10}": b"%06d" % i for i in range(begin + 65, begin + 75)}


def test_a_consumer_passes_over_the_gaps(store):
    put(store, 0, 200)
    store.compact()
    gone(store)
    got = []
    with store.consumer("G", "C") as consumer:
        while batch := consumer.poll(timeout=0):
            got += [m.queue_offset for m in batch]
            batch.ack()
    assert got == [offset for offset, _, _ in model.walked(store)] and len(got) < 200


# ---- verification, backups, the command

def test_verify_looks_at_compaction_logs(tmp_path):
    root = tmp_path / "s"
    with model.open_store(root) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 100)
        store.compact()
        log = store._compactions._log("C", 0, False)
        start = log.segments.pair(0)[0]
    assert [f for f in verify(root) if f.kind.startswith("compaction")] == []
    path = root / "compaction/compactionLog/C/0" / f"{start:020d}"
    content = bytearray(path.read_bytes())
    content[content.index(b"0000")] ^= 1            # of a body
    path.write_bytes(content)
    (root / "compaction/compactionCq/C/0" / f"{10 ** 9:020d}").write_bytes(bytes(920))
    (root / "compaction/position-checkpoint").write_text("{")
    found = [(f.kind, f.severity, f.topic, f.queue_id) for f in verify(root) if f.kind.startswith(("compaction", "config"))]
    assert found == [("config_file", "finding", None, None), ("compaction_file", "corrupt", "C", 0),
                     ("compaction_record", "corrupt", "C", 0)]
    path.write_bytes(b"short")
    (found,) = [f for f in verify(root) if f.severity == "corrupt" and f.path.endswith(path.name) and "Log" in f.path]
    assert found.kind == "compaction_file" and "expected" in found.detail


@pytest.mark.parametrize("live", [False, True])
def test_a_backup_has_what_only_the_compaction_log_has(tmp_path, live):
    with model.open_store(tmp_path / "s") as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        store.put("C", b"alone", keys="old")
        put(store, 1, 200)
        store.compact()
        gone(store)
        put(store, 201, 30)
        expected = {key: bytes(m.body) for key, m in store.table("C").items()}
        if live:
            store.backup(tmp_path / "b")
    if not live:
        backup(tmp_path / "s", tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r")
    with model.open_store(tmp_path / "r") as store:
        assert {key: bytes(m.body) for key, m in store.table("C").items()} == expected and "old" in expected
    assert [f for f in verify(tmp_path / "r") if f.severity == "corrupt"] == []


def test_the_command_compacts(tmp_path, rmqstore):
    with model.open_store(tmp_path / "s") as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        put(store, 0, 100)
    options = [word for name in ("compaction_file_size_bytes", "compaction_cq_file_size_bytes")
               for word in ("-o", f"{name}={model.SMALL[name]}")]
    dry = rmqstore("topics", "compact", tmp_path / "s", "-n", *options)
    code, out, err = rmqstore("topics", "compact", tmp_path / "s", *options)
    assert code == 0 and out.startswith("compacted  C/0  kept 10 of "), err
    assert dry[:2] == (0, "nothing to compact\n")       # nothing was fed then: the commands run no services
    assert rmqstore("topics", "compact", tmp_path / "s", "-t", "T", *options)[0] != 0


WRITER = """
import sys
sys.path.insert(0, {repo!r})
from rmq_store.services.compaction.table import Table
from rmq_store.status import GetStatus
from tests.compaction import model
store = model.open_store({root!r})
sent = model.messages(4000, {seed})
model.work(store, sent, lambda note: print(*note, flush=True))
"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_a_killed_process(tmp_path, seed):
    root, repo = str(tmp_path / "s"), os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    process = subprocess.Popen([sys.executable, "-c", WRITER.format(repo=repo, root=root, seed=seed)], stdout=subprocess.PIPE,
                               text=True)
    durable = 0
    for _ in range(4 + 3 * seed):
        name, value = process.stdout.readline().split()
        durable = int(value) if name == "durable" else durable
    process.kill()
    process.communicate()
    with model.open_store(root) as store:
        sent = model.messages(4000, seed)
        assert model.wrong(store, sent, durable) is None
        store.compact()
        assert model.wrong(store, sent, durable) is None
