"""Options: names, types, ranges, two names for one option, profiles, origins; the committed page is the table."""
import logging
import pathlib
import pickle
import re
import subprocess
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.config import values
from rmq_store.config.broker import BROKER_ONLY, NEVER_READ
from rmq_store.config.load import Default, resolve
from rmq_store.config.options import BY_UPSTREAM, OPTIONS
from rmq_store.config.sources import profile_names
from rmq_store.config.upstream import NO_EFFECT, NOT_SUPPORTED
from rmq_store.errors import ConfigError

ROOT = pathlib.Path(__file__).parents[2]


def test_defaults_are_upstream_s():
    o = resolve()
    assert (o.segment_size_bytes, o.consumequeue_file_size_bytes, o.index_slots) == (1 << 30, 6_000_000, 5_000_000)
    assert (o.flush_mode, o.write_path, o.segment_prezero, o.visibility) == ("async", "mmap", "off", "committed")
    assert len(o.delay_levels) == 18 and o.delay_levels[0] == 1000 and o.delay_levels[-1] == 7_200_000
    assert o.origin("index_slots") == "default" and not o.given("index_slots")


def test_each_default_passes_its_own_check():
    for option in OPTIONS:
        assert option.default is None or option.convert(option.default) is not None


def test_golden_configurations_are_taken_as_text():
    o = resolve(None, {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "800", "maxHashSlotNum": "16",
                       "maxIndexNum": "96", "enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4096",
                       "bitMapLengthConsumeQueueExt": "64", "maxTopicLength": "200", "enabledAppendPropCRC": "true",
                       "flushIntervalCommitLog": "50", "flushCommitLogThoroughInterval": "200",
                       "flushIntervalConsumeQueue": "100", "flushConsumeQueueThoroughInterval": "300"})
    assert (o.segment_size_bytes, o.consumequeue_file_size_bytes, o.index_entries_max) == (65536, 800, 96)
    assert o.consumequeue_ext_enabled is True and o.record_crc is True and o.topic_size_max_bytes == 200
    assert o.origin("segment_size_bytes") == "keyword mappedFileSizeCommitLog" and o.given("segment_size_bytes")


@pytest.mark.parametrize(("name", "value", "ours", "expected"), [
    ("flushDiskType", "SYNC_FLUSH", "flush_mode", "sync"),
    ("flushDiskType", "ASYNC_FLUSH", "flush_mode", "async"),
    ("transientStorePoolEnable", "true", "write_path", "pool"),
    ("transientStorePoolEnable", False, "write_path", "mmap"),
    ("fastFailIfNoBufferInStorePool", True, "pool_empty", "fail"),
    ("flushCommitLogTimed", "false", "flush_wake", "eager"),
    ("useReentrantLockWhenPutMessage", "false", "put_lock", "spin"),
    ("messageDelayLevel", "1s 2d", "delay_levels", (1000, 172_800_000)),
    ("mapedFileSizeCommitLog", 4096, "segment_size_bytes", 4096),
    ("storePathCommitLog", "/x", "commitlog_path", "/x"),
    ("consumequeue_file_size_bytes", 21, "consumequeue_file_size_bytes", 40),
    ("segment_size_bytes", "64 MiB", "segment_size_bytes", 64 << 20),
    ("segment_size_bytes", "4KIB", "segment_size_bytes", 4096),
    ("flush_interval_ms", "2s", "flush_interval_ms", 2000),
    ("flush_deadline_ms", "1 min", "flush_deadline_ms", 60_000),
])
def test_upstream_values_become_ours(name, value, ours, expected):
    assert resolve(None, {name: value})[ours] == expected


@pytest.mark.parametrize(("keywords", "words"), [
    ({"segment_size": 1}, "segment_size is unknown: did you mean segment_size_bytes"),
    ({"maxHashSlotNumber": 1}, "did you mean maxHashSlotNum?"),
    ({"xqzw": 1}, "docs/options.md"),
    ({"index_slots": 8, "maxHashSlotNum": 8}, "two names for one option"),
    ({"transientStorePoolEnable": True, "write_path": "pool"}, "two names for one option"),
    ({"index_slots": 0}, "option index_slots is 0: expected 1 to"),
    ({"index_slots": "many"}, "expected a whole number"),
    ({"index_slots": 1.0}, "expected a whole number"),
    ({"index_slots": True}, "expected a whole number"),
    ({"index_slots": None}, "expected a whole number"),
    ({"signals": "yes"}, "expected true or false"),
    ({"signals": 1}, "expected true or false"),
    ({"flush_mode": "SYNC_FLUSH"}, "expected 'async' or 'sync'"),
    ({"flushDiskType": "sync"}, "expected ASYNC_FLUSH or SYNC_FLUSH"),
    ({"delay_levels": "1s 5x"}, "not '5x'"),
    ({"delay_levels": ""}, "at least one level"),
    ({"commitlog_path": "/a,,/b"}, "expected a path"),
    ({"commitlog_path": "/a,/b,/a/"}, "expected each directory once"),
    ({"commitlog_path": ["/a", "/b,c"]}, "expected one path"),
    ({"commitlog_path": ["/a", pathlib.Path("/b,c")]}, "without a comma in them"),
    ({"commitlog_path": [f"/{n}" for n in range(65)]}, "expected at most 64 directories"),
    ({"commitlog_path": "/a,/b", "index_path": "/b"}, "three different directories"),
    ({"commitlog_path": "/a,/b", "commitlog_paths_readonly": "/a, /b"}, "leaves none for new files: add a directory"),
    ({"consumequeue_path": "/a,/b"}, "expected one path"),
    ({"commitlog_path": ""}, "expected a path"),
    ({"commitlog_path": "/a", "index_path": "/a/"}, "three different directories"),
    ({"store_host": "localhost:1"}, "numeric address"),
    ({"store_host": "1.2.3.4:65536"}, "0 to 65535"),
    ({"index_slots": 100_000_000, "index_entries_max": 100_000_000}, "make an index file of"),
    ({"haListenPort": "abc"}, "expected 'ip:port'"),
    ({"haMasterAddress": "nowhere"}, "expected 'host:port' with a port of 1 to 65535"),
    ({"haSendHeartbeatInterval": "abc"}, "expected a whole number"),
    ({"enableControllerMode": True}, "option enableControllerMode is True, which is not supported: this store speaks the "
                                     "classic HA protocol only: leave the option out, or give false"),
    ({"inSyncReplicas": 2}, "in_sync_replicas is 2, and total_replicas 1"),
    ({"readOnlyCommitLogStorePaths": "/x,,/y"}, "expected a path"),
    ({"totalReplicas": "many"}, "expected a whole number"),
    ({"mapedFileSizeCommitLog": 4096, "mappedFileSizeCommitLog": 8192}, "two names for one option"),
    ({"segment_size_bytes": "1 GB"}, "expected a whole number of bytes, or one with KiB, MiB or GiB"),
    ({"flush_interval_ms": "1 week"}, "expected a whole number of ms, or one with s, min or h"),
    ({"profil": "dev"}, "did you mean profile"), ({"nope": "1"}, "list all options"),
    ({"index_slots": "1KiB"}, "expected a whole number"),
    ({"brokerNam": "a"}, "did you mean brokerName?"),
])
def test_what_is_refused_and_how(keywords, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve(None, keywords)


def test_hosts_of_both_families():
    assert values.to_host(" 127.0.0.1:10911") == "127.0.0.1:10911"
    assert values.to_host("[::1]:0") == "[::1]:0"
    for wrong in ("::1:0", "1.2.3.4", "[1.2.3.4]:1", "1.2.3.4:-1", ":1", "", b"1.2.3.4:1"):
        with pytest.raises(ValueError, match="expected"):
            values.to_host(wrong)


def test_profiles_give_way_to_keywords():
    assert resolve("durable").segment_prezero == "window"
    assert resolve("durable").flush_mode == "sync"
    assert resolve("durable").visibility == "durable"
    assert resolve("durable", {"compat": "4.9"}).visibility == "committed"
    assert resolve("low_latency", {"write_path": Default("mmap")}).write_path == "pool"
    o = resolve("low_latency", {"write_path": "mmap"})
    assert o.write_path == "mmap" and o.origin("write_path") == "keyword"
    assert resolve("durable").origin("flush_mode") == "profile durable"
    with pytest.raises(ConfigError, match="there are cloud_block, container, dev, durable, "):
        resolve("nvm")


def test_sync_flush_prezeroes_unless_told_otherwise():
    assert resolve(None, {"flush_mode": "sync"}).segment_prezero == "window"
    assert resolve(None, {"flush_mode": "sync", "segment_prezero": "off"}).segment_prezero == "off"


def test_names_without_effect_are_taken_and_said(caplog):
    caplog.set_level(logging.WARNING, logger="rmq_store")
    assert resolve(None, {"haMaxTimeSlaveNotCatchup": "15000", "timerWarmEnable": False}) == resolve()
    assert not caplog.records
    resolve(None, {"haMaxTimeSlaveNotCatchup": 1, "rocksdbCompressionType": "zstd"})
    assert [r.message for r in caplog.records] == [
        "options of keyword have no effect here: haMaxTimeSlaveNotCatchup=1 (this store speaks the classic HA protocol only); "
        "rocksdbCompressionType=zstd (queues are files)"]


def test_two_names_of_upstream_for_one_thing_may_agree():
    """`mqbroker -p` prints every key, so a configuration may hold both."""
    both = {"flushCommitLogTimed": "true", "wakeFlushWhenPutMessage": "false", "transientStorePoolEnable": "true",
            "writeWithoutMmap": "false"}
    o = resolve(None, both)
    assert (o.flush_wake, o.write_path) == ("timed", "pool")
    for timed, wake, expected in (("false", "true", "eager"), ("false", "false", "timed"), ("true", "true", "timed")):
        assert resolve(None, {"flushCommitLogTimed": timed, "wakeFlushWhenPutMessage": wake}).flush_wake == expected
        assert resolve(None, {"wakeFlushWhenPutMessage": wake, "flushCommitLogTimed": timed}).flush_wake == expected
    assert resolve(None, {"writeWithoutMmap": "false", "transientStorePoolEnable": "false"}).write_path == "mmap"


def test_root_given_twice_must_agree(tmp_path):
    assert resolve(None, {"storePathRootDir": f"{tmp_path}/"}, tmp_path)
    with pytest.raises(ConfigError, match="give the same path"):
        resolve(None, {"storePathRootDir": "/elsewhere"}, tmp_path)


def test_options_cannot_change_and_can_travel():
    o = resolve("durable", {"index_slots": 7})
    with pytest.raises(AttributeError):
        o.index_slots = 8
    with pytest.raises(AttributeError, match="no option"):
        _ = o.index_slot
    twin = pickle.loads(pickle.dumps(o))
    assert twin == o and twin.origin("index_slots") == "keyword"
    assert "index_slots=7" in repr(o) and "index_entries_max" not in repr(o)


def test_every_name_stands_once():
    names = [o.name for o in OPTIONS] + list(BY_UPSTREAM) + list(NO_EFFECT) + list(NOT_SUPPORTED)
    names += [*(BROKER_ONLY | NEVER_READ), "brokerIP1", "listenPort"]
    assert len(names) == len(set(names))
    assert sum(len(o.upstream) for o in OPTIONS) == len(BY_UPSTREAM)
    for o in OPTIONS:
        assert re.fullmatch(r"[a-z_]+", o.name)
        assert o.text.endswith(".")
        assert o.change in ("live", "reopen", "fixed")
    for name in profile_names():
        assert resolve(name)


def test_the_page_is_current():
    command = [sys.executable, "-W", "error", "-m", "rmq_store.config.document"]
    page = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "options.md").read_text() == page, "run python -m rmq_store.config.document > docs/options.md"


def test_every_option_is_read_somewhere():
    store = ROOT / "rmq_store" / "store.py"
    if not store.exists():
        pytest.skip("no store yet to read them")
    text = "\n".join(p.read_text() for suffix in ("*.py", "*.pyx") for p in (ROOT / "rmq_store").rglob(suffix)
                     if p.parent.name != "config")
    unread = [o.name for o in OPTIONS if not re.search(rf"\b{o.name}\b", text)]
    assert unread == []


def test_parsing_ahead_of_dispatch_is_accepted_and_named(tmp_path, caplog):
    """enableBuildConsumeQueueConcurrently: ARCHITECTURE says why one thread dispatches."""
    with caplog.at_level("WARNING"), MessageStore.open(
            tmp_path / "s", profile="dev", enableBuildConsumeQueueConcurrently=True) as store:
        store.put("T", b"x")
        assert store.wait_dispatched(30) and len(store.get("T", 0, 0)) == 1
    said = [r.getMessage() for r in caplog.records if r.event == "OPTION_NO_EFFECT"]
    assert len(said) == 1 and "enableBuildConsumeQueueConcurrently=True (one native thread dispatches)" in said[0]
