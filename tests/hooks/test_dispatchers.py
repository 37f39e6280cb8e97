"""Dispatchers: every dispatched record once and in order, at their own pace, from a position that outlives the process."""
import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.dispatchers import dispatcher
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


class Taker:
    """Keeps the bodies that it gets."""

    def __init__(self):
        self.bodies, self.batches = [], 0

    def __call__(self, messages):
        self.batches += 1
        self.bodies += [bytes(m.body) for m in messages]


def of(store, name):
    (found,) = [d for d in store.dispatchers() if d.name == name]
    return found


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        yield made


def test_it_gets_all_in_order_and_what_comes_later(store):
    bodies = [b"%d" % i * 50 for i in range(1500)]
    for i, body in enumerate(bodies[:1000]):
        store.put(f"T{i % 3}", body, queue_id=i % 2)
    taker = Taker()
    store.add_dispatcher("all", taker)
    until(lambda: len(taker.bodies) == 1000)
    store.put_many("T", bodies[1000:])
    until(lambda: len(taker.bodies) == 1500)
    assert taker.bodies == bodies and taker.batches >= 1500 // dispatcher.BATCH_MESSAGES and store.stats()["log_files"] > 2
    until(lambda: of(store, "all").behind_bytes == 0)
    assert of(store, "all")[4:] == (True, None) and of(store, "all").messages == 1500


def test_records_without_a_queue_come_too(store):
    topics = []
    store.add_dispatcher("all", lambda messages: topics.extend(m.topic for m in messages))
    store.prepare("T", b"x", group="g").rollback()
    store.put("T", b"x", delay_level=18)
    until(lambda: len(topics) == 3)
    assert topics == ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"]


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_its_position_outlives_the_store(tmp_path, write_path):
    taker = Taker()
    for part in range(3):
        with MessageStore.open(tmp_path / "s", write_path=write_path, **SMALL) as store:
            for i in range(100):
                store.put("T", b"%d" % (100 * part + i))
            store.add_dispatcher("search", taker)
            until(lambda part=part: len(taker.bodies) == 100 * (part + 1))
            until(lambda: of(store, "search").behind_bytes == 0)
            end = store.max_log_offset
    assert taker.bodies == [b"%d" % i for i in range(300)]
    assert json.loads((tmp_path / "s/config/dispatchers.json").read_text()) == {"offsetTable": {"search": end}}
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as reader:
        assert reader.dispatchers() == [("search", end, 0, 0, False, None)]
        for refused in (lambda: reader.add_dispatcher("x", taker), lambda: reader.remove_dispatcher("search")):
            with pytest.raises(errors.StoreNotWriteable):
                refused()


def test_the_command_shows_positions(store, tmp_path, rmqstore):
    store.put("T", b"x")
    store.add_dispatcher("search", Taker())
    until(lambda: of(store, "search").messages == 1)
    end = store.max_log_offset
    store.close()
    code, out, _ = rmqstore("stat", tmp_path / "s")
    assert code == 0 and out.splitlines()[-1].split() == ["search", str(end), "0"] and "bytes behind" in out
    code, out, _ = rmqstore("stat", tmp_path / "s", "--json")
    assert {"kind": "dispatcher", "name": "search", "offset": end, "behind_bytes": 0} in map(json.loads, out.splitlines())


def test_a_store_without_one_has_no_file(store, tmp_path):
    store.put("T", b"x")
    store.close()
    assert not (tmp_path / "s/config/dispatchers.json").exists()


def test_where_it_begins(store):
    places = [store.put("T", b"%d" % i).offset for i in range(5)]
    store.wait_dispatched(10)
    takers = {"third": Taker(), "now": Taker()}
    store.add_dispatcher("third", takers["third"], from_offset=places[3])
    store.add_dispatcher("now", takers["now"], from_offset=store.max_log_offset)
    store.put("T", b"5")
    until(lambda: len(takers["third"].bodies) == 3 and len(takers["now"].bodies) == 1)
    assert takers["third"].bodies == [b"3", b"4", b"5"] and takers["now"].bodies == [b"5"]
    for bad in (places[3] + 1, 1 << 40):
        with pytest.raises(errors.ArgumentIllegal, match="from_offset"):
            store.add_dispatcher("odd", Taker(), from_offset=bad)
    for bad in (-1, "0", 1 << 63):
        with pytest.raises(errors.ArgumentIllegal):
            store.add_dispatcher("odd", Taker(), from_offset=bad)


def test_an_error_stops_this_one_alone_and_it_can_begin_again(store, caplog):
    def fails(messages):
        raise RuntimeError("no room in the search index")

    taker, again = Taker(), Taker()
    store.put("T", b"x")
    store.add_dispatcher("bad", fails)
    store.add_dispatcher("good", taker)
    until(lambda: not of(store, "bad").running)
    assert of(store, "bad").error == "RuntimeError: no room in the search index" and of(store, "bad").offset == 0
    assert [r.fields["name"] for r in caplog.records if getattr(r, "event", "") == "DISPATCHER_STOPPED"] == ["bad"]
    store.put("T", b"y")
    until(lambda: taker.bodies == [b"x", b"y"])
    assert of(store, "good").running
    store.add_dispatcher("bad", again)
    until(lambda: again.bodies == [b"x", b"y"])


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, errors.StoreClosed])
def test_whatever_it_raises(store, error):
    def fails(messages):
        raise error()

    store.put("T", b"x")
    store.add_dispatcher("bad", fails)
    until(lambda: of(store, "bad").error is not None)
    store.put("T", b"y")
    assert store.wait_dispatched(10)


def test_a_slow_one_holds_nobody_up(store):
    held, entered = threading.Event(), threading.Event()

    def slow(messages):
        entered.set()
        held.wait()

    fast = Taker()
    store.add_dispatcher("slow", slow)
    store.add_dispatcher("fast", fast)
    store.put("T", b"first")
    entered.wait()
    for i in range(1000):
        store.put("T", b"%d" % i)
    assert store.wait_dispatched(10) and store.max_offset("T", 0) == 1001
    until(lambda: len(fast.bodies) == 1001)
    assert of(store, "slow").behind_bytes > 0 and of(store, "slow").messages == 0
    held.set()
    until(lambda: of(store, "slow").messages == 1001)


def test_what_cleaning_deleted_is_said_and_passed_over(store, caplog):
    held, bodies = threading.Event(), []

    def slow(messages):
        held.wait()
        bodies.extend(bytes(m.body) for m in messages)

    store.put("T", b"first")
    store.add_dispatcher("slow", slow)
    store.wait_dispatched(10)
    for i in range(2000):
        store.put("T", b"%04d" % i * 20)
    store.flush()
    store.wait_dispatched(10)
    store.clean(0)
    assert store.min_log_offset > 0
    held.set()
    until(lambda: bodies and bodies[-1] == b"1999" * 20)
    lost = [r.fields for r in caplog.records if getattr(r, "event", "") == "DISPATCHER_LOST"]
    assert lost and all(one["begin"] < one["end"] <= store.min_log_offset for one in lost)
    begun = bytes(store.message_at(lost[-1]["end"]).body)
    assert begun in bodies and bodies[bodies.index(begun):] == [b"%04d" % i * 20 for i in range(int(begun[:4]), 2000)]


def test_names_and_removal(store, tmp_path):
    taker = Taker()
    store.put("T", b"x")
    store.add_dispatcher("a", taker)
    with pytest.raises(errors.StoreStateError, match=r"dispatcher a of .* is running"):
        store.add_dispatcher("a", taker)
    until(lambda: len(taker.bodies) == 1)
    until(lambda: of(store, "a").behind_bytes == 0)
    store.remove_dispatcher("a")
    kept = of(store, "a")
    assert (kept.offset, kept.running) == (store.max_log_offset, False)
    assert json.loads((tmp_path / "s/config/dispatchers.json").read_text()) == {"offsetTable": {"a": kept.offset}}
    store.remove_dispatcher("a", forget=True)
    assert store.dispatchers() == []
    assert json.loads((tmp_path / "s/config/dispatchers.json").read_text()) == {"offsetTable": {}}
    store.add_dispatcher("a", taker)
    until(lambda: len(taker.bodies) == 2)
    with pytest.raises(ValueError, match="name is 'b': there is no dispatcher of that name"):
        store.remove_dispatcher("b")
    for bad in ("", "a b", "../a", None, "x" * 121):
        with pytest.raises(errors.ArgumentIllegal):
            store.add_dispatcher(bad, taker)
    with pytest.raises(errors.ArgumentIllegal):
        store.add_dispatcher("c", "text")


def test_it_may_remove_itself_and_close_the_store(tmp_path):
    store = MessageStore.open(tmp_path / "s", **SMALL)
    done = threading.Event()
    store.put("T", b"x")
    store.add_dispatcher("once", lambda messages: store.remove_dispatcher("once"))
    until(lambda: not of(store, "once").running)

    def end(messages):
        store.close()
        done.set()

    store.add_dispatcher("end", end)
    assert done.wait(10)
    until(lambda: store._lock_fd is None)
    with pytest.raises(errors.StoreClosed):
        store.add_dispatcher("late", print)


@pytest.mark.parametrize(("text", "error"), [
    ("{", errors.ConfigFileCorrupted), ('{"offsetTable":{"a":-1}}', errors.ConfigFileCorrupted),
    ('{"offsetTable":{"a":"x"}}', errors.ConfigFileCorrupted), ('{"offsetTable":{"../a":1}}', errors.ConfigFileCorrupted),
    ('{"offsetTable":[]}', errors.ConfigFileCorrupted), ("{}", errors.ConfigFileCorrupted),
    ('{"offsetTable":{"a":7}}', errors.CorruptionError), ('{"offsetTable":{"a":9223372036854775807}}', errors.CorruptionError)])
def test_positions_that_cannot_be(tmp_path, text, error):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
    (tmp_path / "s/config").mkdir(exist_ok=True)
    (tmp_path / "s/config/dispatchers.json").write_text(text)
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        with pytest.raises(error) as found:
            store.add_dispatcher("a", Taker())
        assert type(found.value) is error
        store.put("T", b"y")
        if error is errors.CorruptionError:
            assert "remove_dispatcher('a', forget=True)" in str(found.value)
            store.remove_dispatcher("a", forget=True)
            taker = Taker()
            store.add_dispatcher("a", taker)
            until(lambda: taker.bodies == [b"x", b"y"])
    if error is errors.ConfigFileCorrupted:
        assert (tmp_path / "s/config/dispatchers.json").read_text() == text      # not replaced


@pytest.mark.parametrize("call", ["open", "pwrite", "fsync", "rename"])
def test_positions_that_cannot_be_written_stay_as_they_were(tmp_path, call):
    io, taker, file = ProbeIo(), Taker(), tmp_path / "s/config/dispatchers.json"
    store = MessageStore.open(tmp_path / "s", _io=io, offsets_flush_interval_ms=3_600_000, **SMALL)
    store.add_dispatcher("a", taker)
    for body in (b"x", b"y"):
        store.put("T", body)
        until(lambda body=body: of(store, "a").messages == 1 + (body == b"y"))
        if body == b"x":
            store._dispatchers.write()
            before = file.read_text()
    io.fail(call, 1, 5, path="/config/")
    with pytest.raises(OSError, match="Input/output error"):
        store._dispatchers.write()
    assert file.read_text() == before
    io.clear()
    store.close()
    assert taker.bodies == [b"x", b"y"] and file.read_text() != before


def test_a_position_is_written_behind_a_flush(tmp_path):
    taker = Taker()
    with MessageStore.open(tmp_path / "s", flush_interval_ms=3_600_000, offsets_flush_interval_ms=3_600_000, **SMALL) as store:
        store.put("T", b"x")
        store.add_dispatcher("a", taker)
        until(lambda: of(store, "a").messages == 1)
        store._dispatchers.write()
        (position,) = json.loads((tmp_path / "s/config/dispatchers.json").read_text())["offsetTable"].values()
        assert store._position("flushed") >= position > 0


CHILD = """
import sys
from rmq_store import MessageStore

store = MessageStore.open(sys.argv[1], offsets_flush_interval_ms=5, segment_size_bytes=1 << 16, index_slots=100,
                          index_entries_max=1000, consumequeue_file_size_bytes=2000)
out = open(sys.argv[2], "ab", buffering=0)
store.add_dispatcher("a", lambda messages: out.write(b"".join(bytes(m.body) + b"\\n" for m in messages)))
begin = store.max_offset("T", 0)
print("open", flush=True)
for i in range(begin, begin + 100_000):
    store.put("T", b"%d" % i)
"""


@pytest.mark.crash
@pytest.mark.parametrize("round", range(3))
def test_kills_leave_no_record_out(tmp_path, round):
    """At least once: what comes again begins at a position that was written, and nothing is skipped."""
    seen = tmp_path / "seen"
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "s"), str(seen)], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"open\n"
        least = os.path.getsize(seen) + 1000 + 700 * round
        until(lambda least=least: os.path.getsize(seen) > least)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    taker = Taker()
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        end = store.max_offset("T", 0)
        store.add_dispatcher("a", taker)
        until(lambda: of(store, "a").behind_bytes == 0)
    got = [int(line) for line in seen.read_bytes().splitlines()] + [int(b) for b in taker.bodies]
    assert set(got) == set(range(end)) and got[-1] == end - 1
    assert all(b == a + 1 or b <= a for a, b in itertools.pairwise(got))


async def _awaited(path):
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with await AsyncMessageStore.open(path, **SMALL) as store:
        await store.add_dispatcher("a", lambda messages: loop.call_soon_threadsafe(arrived.set))
        await store.put("T", b"x")
        await arrived.wait()
        assert [d.name for d in await store.dispatchers()] == ["a"]
        await store.remove_dispatcher("a", forget=True)
        assert await store.dispatchers() == []


def test_asyncio(tmp_path):
    asyncio.run(_awaited(tmp_path / "s"))


def test_the_option_names_entry_points(tmp_path, monkeypatch):
    site = tmp_path / "site"
    (site / "seekers-1.0.dist-info").mkdir(parents=True)
    (site / "seekers.py").write_text("bodies = []\ndef index(messages):\n    bodies.extend(bytes(m.body) for m in messages)\n")
    (site / "seekers-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: seekers\nVersion: 1.0\n")
    (site / "seekers-1.0.dist-info" / "entry_points.txt").write_text("[rmq_store.dispatchers]\nindex = seekers:index\n")
    monkeypatch.syspath_prepend(str(site))
    sys.modules.pop("seekers", None)
    import seekers
    with MessageStore.open(tmp_path / "s", dispatchers="index", **SMALL) as store:
        store.put("T", b"x")
        until(lambda: seekers.bodies == [b"x"])
    with MessageStore.open(tmp_path / "s", dispatchers="index", _services=False, **SMALL) as store:
        assert [d.running for d in store.dispatchers()] == [False]         # a tool calls none
    with pytest.raises(errors.ConfigError, match="option dispatchers names 'absent'"):
        MessageStore.open(tmp_path / "s", dispatchers="index,absent", **SMALL)
    MessageStore.open(tmp_path / "s", **SMALL).close()
    sys.modules.pop("seekers", None)


def test_a_write_that_comes_late_leaves_the_file_to_the_next_owner(tmp_path):
    """remove_dispatcher may stand between its flush and its write while another thread closes the store."""
    store = MessageStore.open(tmp_path / "s", **SMALL)
    store.put("T", b"x", wait=True)
    store.add_dispatcher("d", lambda messages: None)
    late = store._dispatchers
    store.close()
    content = (tmp_path / "s/config/dispatchers.json").read_bytes()
    late._known["d"] = late._here["d"].offset = 7
    with pytest.raises(errors.StoreClosed):
        late.write()
    assert (tmp_path / "s/config/dispatchers.json").read_bytes() == content
