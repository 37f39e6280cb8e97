"""Arguments of Python calls: each wrong one is a typed error that names it, before anything is stored or waited for; what mypy
knows of the options; how things print."""
import asyncio
import datetime
import io
import json
import pathlib
import subprocess
import sys

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.config import document
from rmq_store.status import GetStatus, PutStatus
from rmq_store.upkeep.moving.lines import export_lines
from rmq_store.upkeep.moving.messages import copy_messages

SMALL = {"segment_size_bytes": 1 << 16, "index_slots": 100, "index_entries_max": 1000}
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put("T", b"x", keys="k")
        s.wait_dispatched(10)
        yield s


WRONG = [
    ("put('T', b'x', tags=['a'])", "tags is a list"), ("put('T', b'x', wait='no')", "wait is 'no'"),
    ("put('T', b'x', wait=1)", "wait is 1"), ("put_async('T', b'x', wait='no')", "wait is 'no'"),
    ("put_many('T', [b'x'], wait='no')", "wait is 'no'"), ("put_many('T', [{'body': b'x'}], wait='no')", "wait is 'no'"),
    ("put_many('T', None)", "messages is a NoneType"), ("put_many('T', b'abc')", "messages is a bytes"),
    ("put_batch('T', None)", "batch is a NoneType"), ("put_batch('T', 5)", "batch is a int"),
    ("put('T', b'x', keys=['a', 5])", "one of keys is 5"), ("put('T', b'x', keys=['a b'])", "one of keys is 'a b'"),
    ("put('T', b'x', keys=[''])", "one of keys is ''"), ("put('T', b'x', keys=5)", "keys is a int"),
    ("put('T', b'x', keys=b'k')", "keys is a bytes"), ("put_many('T', [{'body': b'x', 'keys': [5]}])", "one of keys is 5"),
    ("get('T', 0, 0, max_count=-1)", "max_count is -1"), ("get('T', 0, 0, max_count=0)", "max_count is 0"),
    ("get('T', 0, 0, 'x')", "max_count is 'x'"), ("get('T', '0', 0)", "queue_id is '0'"),
    ("get('T', -1, 0)", "queue_id is -1"), ("get('T', 1 << 40, 0)", "queue_id is 1099511627776"),
    ("get('T', 0, None)", "offset is None"), ("get('T', 0, 1 << 70)", "offset is 1180591620717411303424"),
    ("get('T', 0, 0, tags=['a'])", "tags is ['a']"), ("get('T', 0, 0, max_bytes=-1)", "max_bytes is -1"),
    ("get('T', 0, 0, wait='no')", "wait is 'no'"), ("get('T', 0, 0, wait=-1)", "wait is -1"),
    ("get(None, 0, 0)", "topic is a NoneType"), ("query_key('T', None)", "key is None"), ("query_key(5, 'k')", "topic is 5"),
    ("query_key('T', 'k', max_count=-1)", "max_count is -1"), ("query_key('T', 'k', begin_time='x')", "begin_time is 'x'"),
    ("query_key('T', 'k', end_time=1.5)", "end_time is 1.5"), ("message_by_unique_key('T', None)", "key is None"),
    ("message_at('x')", "offset is 'x'"), ("offset_by_time('T', 0, 'x')", "timestamp is 'x'"),
    ("min_offset(None, 0)", "topic is None"), ("max_offset('T', '0')", "queue_id is '0'"),
    ("total('T', None)", "queue_id is None"),
    ("raw_entry('T', 0, 'x')", "queue_offset is 'x'"), ("earliest_time('T')", "queue_id is None"),
    ("log_bytes('x')", "offset is 'x'"), ("log_bytes(0, 0)", "size_max is 0"),
    ("wait_for_message('T', 0, 'x')", "offset is 'x'"),
    ("wait_for_message('T', 0, 0, timeout='x')", "timeout is 'x'"), ("wait_dispatched('x')", "timeout is 'x'"),
    ("scan(5).__next__()", "topic is 5"), ("scan('T', '0').__next__()", "queue_id is '0'"),
    ("scan(None, 0).__next__()", "queue_id is 0: give the topic"), ("scan('T', 0, begin='x').__next__()", "begin is 'x'"),
    ("scan(begin_time='x').__next__()", "begin_time is 'x'"), ("log_records('x').__next__()", "begin is 'x'"),
    ("consumer(None, 'T')", "group is None"), ("consumer('g', None)", "topics is None"), ("consumer('g', [5])", "topic is 5"),
    ("consumer('g', 'T', tags=['a'])", "tags is ['a']"), ("consumer('g', 'T', max_retries='x')", "max_retries is 'x'"),
    ("consumer('g', 'T', start='middle')", "start is 'middle'"), ("consumer('g', 'T').run(None)", "handle is None"),
    ("consumer('g', 'T').poll(-1)", "max_count is -1"), ("consumer('g', 'T').poll(1, timeout='x')", "timeout is 'x'"),
    *((call, " which as ms is in the years 1970 to 1973, and as seconds may be now: give ms since 1970") for call in (
        "reset_offset('g', 'T', timestamp=1800000000)", "offset_by_time('T', 0, 1700000000)",
        "query_key('T', 'k', begin_time=1700000000)", "query_key('T', 'k', end_time=1700000000)",
        "scan(begin_time=1700000000).__next__()", "scan('T', end_time=1700000000).__next__()",
        "scan('T', 0, begin_time=1700000000).__next__()", "put('T', b'x', deliver_at=1700000000)")),
    ("reset_offset('g', 'T', timestamp=1.8e9)", "timestamp is 1800000000.0"),
    ("offset_by_time('T', 0, __import__('datetime').datetime(2026, 1, 1))", "without a time zone"),
    ("add_arriving_listener(None)", "listener is None"), ("delete_topics(5)", "topic is 5")]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[call for call, _ in WRONG])
def test_each_wrong_argument_is_named(store, call, words):
    before = store.max_log_offset
    with pytest.raises((errors.ArgumentIllegal, errors.MessageIllegal)) as error:
        eval(f"store.{call}", {"store": store})
    assert words in str(error.value) and ": give " in str(error.value) and isinstance(error.value, ValueError)
    assert store.max_log_offset == before
    error = None


def test_a_time_may_be_a_datetime(store, tmp_path):
    message = store.get("T", 0, 0).messages[0]
    at = datetime.datetime.fromtimestamp(message.store_timestamp / 1000, datetime.UTC)
    later = at + datetime.timedelta(hours=1)
    message = None
    assert (store.offset_by_time("T", 0, at), store.offset_by_time("T", 0, later)) == (0, 1)
    assert (store.reset_offset("g", "T", timestamp=at), store.reset_offset("g", "T", timestamp=later)) == ({0: 0}, {0: 1})
    assert len(list(store.scan("T", begin_time=at, end_time=later))) == 1 and not list(store.scan("T", begin_time=later))
    assert len(store.query_key("T", "k", begin_time=at, end_time=later)) == 1
    assert export_lines(store.path, io.BytesIO(), since=later).messages == 0
    for call in (lambda **span: export_lines(store.path, io.BytesIO(), **span),
                 lambda **span: copy_messages(store.path, tmp_path / "copy", **span)):
        for name in ("since", "until"):
            with pytest.raises(errors.ArgumentIllegal, match=f"{name} is 1800000000, which as ms .* give ms since 1970"):
                call(**{name: 1_800_000_000})
    assert not (tmp_path / "copy").exists()


def test_an_id_of_another_store_is_not_a_message_of_this_one(store):
    own = store.get("T", 0, 0).messages[0].msg_id
    assert [bytes(store.message_by_id(id).body) for id in (own, own.lower())] == [b"x", b"x"]
    for host in ("0A000001", "7F000002"):       # another address, and here the same place
        assert store.message_by_id(host + own[8:]) is None
    assert store.message_by_id(own[:8] + "00002AA0" + own[16:]) is None        # another port
    assert store.message_by_id("0" * 24 + own) is None                         # of 32 digits here, of 56 there


@pytest.mark.parametrize("path", ["", b"", None, 5, "a\0b"])
def test_a_path_that_is_none(tmp_path, monkeypatch, path):
    import rmq_store

    monkeypatch.chdir(tmp_path)
    for look in (MessageStore.open, lambda p: list(rmq_store.verify(p)), rmq_store.scrub, rmq_store.doctor, rmq_store.advise,
                 lambda p: MessageStore.open(p, readonly=True), lambda p: asyncio.run(AsyncMessageStore.open(p))):
        with pytest.raises(errors.ArgumentIllegal, match="path is "):
            look(path)
    assert not list(tmp_path.iterdir())


def test_an_async_store_is_made_over_a_store():
    with pytest.raises(errors.ArgumentIllegal, match=r"store is 'p': give a MessageStore, or open one"):
        AsyncMessageStore("p")


def test_what_an_async_consumer_runs(tmp_path):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as store, await store.consumer("g", "T") as consumer:
            with pytest.raises(errors.ArgumentIllegal, match="handle is None"):
                await consumer.run(None)
            with pytest.raises(errors.ArgumentIllegal, match="max_count is 0"):
                await consumer.poll(0)

    asyncio.run(main())


def test_keys_may_be_an_iterable(store):
    store.put("T", b"a", keys=["one", "two"])
    store.put("T", b"b", keys=(k for k in ("two", "three")))
    store.put_many("T", [b"c", b"d"], keys=iter(["two"]))
    store.put_many("T", [{"body": b"e", "keys": ["five"]}, b"f"], keys=("six",))
    store.put_async("T", b"g", keys={"seven": 1}).result(10)
    store.put("T", b"h", keys=[])
    store.wait_dispatched(10)
    assert [m.keys for m in store.get("T", 0, 1)] == ["one two", "two three", "two", "two", "five", "six", "seven", None]
    assert [bytes(m.body) for m in store.query_key("T", "two")] == [b"a", b"b", b"c", b"d"]


# ---- options for type checkers

def test_the_committed_types_are_those_of_the_table():
    assert document.typed() == (ROOT / "rmq_store/config/typed.py").read_text()


SNIPPET = """
from rmq_store import AsyncMessageStore, MessageStore
with MessageStore.open("s", segment_size_bytes="64 MiB", flushDiskType="SYNC_FLUSH", retention_hours=None) as store:
    store.put("T", b"x", keys=["a", "b"], wait=True)
    for message in store.scan("T"):
        reveal_type(message)
    store.reconfigure(flush_interval_ms=100)
    many: dict[str, object] = {}
MessageStore.open("s", segment_size_byte=1)
MessageStore.open("s", put_lock="mutx")
store.reconfigure(flush_interval=100)
async def main() -> None:
    await AsyncMessageStore.open("s", must_exist=True, flush_mod="sync")
    a = AsyncMessageStore(store)
    await a.put("T", b"x", tags="a", keys=["k"], delay=1.5, wait=False)
    await a.put("T", "text")
    await a.put("T", b"x", tagz="a")
    a.put_async("T", b"x", queue="a")
    await a.put_many("T", [b"x"], tagz="a")
    await a.prepare("T", b"x", group="g", key="k")
    await a.consumer("G", "T", max_retry=1)
    await a.query_key("T", "k", "many")
    await a.clean(1, file_max=1)
    await a.reconfigure(flush_interval=100)
"""


def test_mypy_refuses_a_misspelt_option(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "snippet.py").write_text(SNIPPET)
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports", "silent", "--cache-dir",
                           str(ROOT / ".mypy_cache"), "--config-file", str(ROOT / "pyproject.toml"),
                           str(tmp_path / "snippet.py")], cwd=ROOT, capture_output=True, text=True, timeout=300)
    found = [line.split(":", 1)[1] for line in done.stdout.splitlines()]
    wrong = [line.split(":")[0] for line in found if " error: " in line]
    assert wrong == ["9", "10", "11", "13", *map(str, range(16, 25))], done.stdout + done.stderr
    text = "\n".join(found)
    for words in ('"segment_size_byte"', '"segment_size_bytes"', '"put_lock"', '"flush_interval"', '"flush_mod"',
                  'is "rmq_store.access.reader._message.Message"'):
        assert words in text, text


# ---- how things print

def test_a_status_prints_its_name_and_is_its_number():
    status = PutStatus.PUT_OK
    assert (str(status), f"{status}", f"{status:d}", f"{status:>3}") == (
        "PUT_OK", "PUT_OK", "0", "  0")
    assert json.dumps({"status": GetStatus.OFFSET_RESET}) == '{"status": 9}' and GetStatus.OFFSET_RESET == 9
    assert repr(status) == "<PutStatus.PUT_OK: 0>" and PutStatus("0" == "1") is status


def test_a_store_says_what_it_is(store, tmp_path):
    end = store.max_log_offset
    assert repr(store) == f"<MessageStore {str(tmp_path / 's')!r}, mmap, async, 1 queues, log ends at {end}>"
    with MessageStore.open(tmp_path / "s", readonly=True) as reader:
        assert repr(reader) == f"<MessageStore {str(tmp_path / 's')!r}, readonly, 1 queues, log ends at {end}>"
    assert repr(AsyncMessageStore(store)) == f"AsyncMessageStore({store!r})"
    store.close()
    assert repr(store) == f"<MessageStore {str(tmp_path / 's')!r}, closed>"
    assert repr(MessageStore.__new__(MessageStore)) == "<MessageStore, not open>"


def test_html_shows_text_and_no_markup(store):
    evil = "<script>alert('x')</script>&\""
    store.put("T", evil.encode(), tags="<b>", keys="<i>")
    store.put("T", b"\xff\x00" * 400)
    store.put("T", "grün".encode() * 500)
    store.wait_dispatched(10)
    result = store.get("T", 0, 1)
    page = result._repr_html_()
    assert "<script" not in page and "<b>" not in page and "<i>" not in page
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;" in page and "&lt;b&gt;" in page
    assert "0xff00ff00" in page and "ff00" * 20 not in page and "grün" * 40 in page and "grün" * 60 not in page
    assert page.count("<tr>") == 4 and "GetResult(FOUND, 3 messages" in page
    assert result[0]._repr_html_().count("<tr>") == 2 and "&lt;i&gt;" in store.query_key("T", "<i>")._repr_html_()
