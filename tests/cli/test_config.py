"""`rmqstore config`: values with their origins, profiles, a broker.conf as TOML; --profile and --config elsewhere."""
import json

import pytest

from rmq_store import MessageStore
from rmq_store.config.load import resolve
from rmq_store.config.options import OPTIONS

SMALL = {"segment_size_bytes": 65536, "index_slots": 16, "index_entries_max": 64}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in ("RMQ_STORE_PROFILE", "RMQ_STORE_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_every_option_with_its_origin(json_lines, monkeypatch, tmp_path):
    monkeypatch.setenv("RMQ_STORE_INDEX_SLOTS", "8")
    conf = tmp_path / "broker.conf"
    conf.write_text("maxMessageSize=1000\n")
    code, lines = json_lines("config", "show", "--profile", "durable", "--config", conf, "-o", "close_timeout_ms=1s")
    shown = {line["option"]: line for line in lines}
    assert code == 0 and list(shown) == [o.name for o in OPTIONS]
    assert [(shown[n]["value"], shown[n]["origin"]) for n in (
        "index_slots", "message_size_max_bytes", "close_timeout_ms", "flush_mode", "visibility", "signals")] == [
        (8, "environment RMQ_STORE_INDEX_SLOTS"), (1000, f"file {conf} maxMessageSize"), (1000, "keyword"),
        ("sync", "profile durable"), ("durable", "derived"), (False, "default")]


def test_a_store_tells_its_sizes(rmqstore, tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
    code, out, _ = rmqstore("config", "show", tmp_path / "s", "--changed", "--profile", "container")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0 and "files" in rows["segment_size_bytes"] and "65536 bytes" in rows["segment_size_bytes"]
    assert "profile container" in rows["write_path"] and "signals" not in rows


def test_changed_lists_what_differs_from_the_default(json_lines, tmp_path):
    with MessageStore.open(tmp_path / "s", flush_mode="sync", index_slots=100, index_entries_max=1000):
        pass

    def named(*more):
        return {row["option"]: row["value"] for row in json_lines("config", "show", tmp_path / "s", "--changed", *more)[1]}

    assert named() == {"index_slots": 100, "index_entries_max": 1000}
    assert named("-o", "flush_mode=sync") == {"index_slots": 100, "index_entries_max": 1000, "flush_mode": "sync",
                                              "segment_prezero": "window", "visibility": "durable"}
    assert named("-o", "flush_mode=async") == {"index_slots": 100, "index_entries_max": 1000}


def test_profiles_are_listed_with_the_user_s(json_lines, rmqstore, tmp_path):
    own = tmp_path / "xdg" / "rmq_store" / "profiles"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text("flush_mode = 'sync'\n")
    code, lines = json_lines("config", "profiles")
    assert code == 0 and lines[-1] == {"profile": "mine", "place": str(own), "description": "",
                                       "options": {"flush_mode": "sync"}}
    code, out, _ = rmqstore("config", "profiles")
    assert code == 0 and "nvme  (built in)" in out and '    flush_mode = "sync"' in out
    (own / "mine.toml").write_text("flush_mod = 'sync'\n")
    code, _, err = rmqstore("config", "profiles")
    assert code == 64 and "did you mean flush_mode?" in err


def test_every_option_is_explained(rmqstore, json_lines):
    code, lines = json_lines("config", "options")
    assert code == 0 and [line["option"] for line in lines] == [o.name for o in OPTIONS]
    assert all(line["text"] and line["range"] for line in lines)
    code, out, _ = rmqstore("config", "options", "flushDiskType", "segment_size_bytes")
    assert code == 0 and out.startswith("flush_mode = async    (async or sync; reopen)")
    assert "segment_size_bytes = 1073741824 bytes    (4096 to 2147483647 bytes; fixed)" in out
    assert "RocketMQ: mappedFileSizeCommitLog, mapedFileSizeCommitLog" in out
    code, _, err = rmqstore("config", "options", "flush_mod")
    assert code == 64 and "did you mean flush_mode?" in err
    assert rmqstore("config", "options", "brokerName")[0] == 64


def test_a_broker_conf_becomes_toml(rmqstore, tmp_path):
    conf, toml = tmp_path / "broker.conf", tmp_path / "rmq.toml"
    conf.write_text('brokerName=a\nflushDiskType=SYNC_FLUSH\nmessageDelayLevel=1s 2s\nenableConsumeQueueExt=true\n'
                    'storePathCommitLog=/a "b\\\\c\n')
    code, out, err = rmqstore("config", "convert", conf, "-v")
    assert code == 0 and "not of the store: brokerName" in err
    toml.write_text(out)
    assert resolve(config=toml) == resolve(config=conf)
    assert "delay_levels = [1000, 2000]" in out and "flush_interval_ms" not in out
    assert json.loads(rmqstore("config", "convert", conf, "--json")[1])["flush_mode"] == "sync"


def test_commands_open_with_profile_and_config(rmqstore, json_lines, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\nmaxHashSlotNum=16\nmaxIndexNum=64\nflushDiskType=SYNC_FLUSH\n")
    body = tmp_path / "body"
    body.write_bytes(b"one\n")
    code, _, err = rmqstore("put", tmp_path / "s", body, "-t", "T", "--config", conf, "--profile", "ssd")
    assert code == 0, err
    assert (tmp_path / "s" / "commitlog" / ("0" * 20)).stat().st_size == 65536
    _, lines = json_lines("stat", tmp_path / "s", "--config", conf, "--profile", "ssd")
    assert lines[0]["flush_mode"] == "sync" and lines[0]["write_path"] == "pool"
    assert rmqstore("stat", tmp_path / "s", "--profile", "nosuch")[0] == 64


def test_the_environment_reaches_open(tmp_path, monkeypatch):
    monkeypatch.setenv("RMQ_STORE_FLUSH_MODE", "sync")
    monkeypatch.setenv("RMQ_STORE_PROFILE", "low_latency")
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert (store.options.flush_mode, store.options.write_path) == ("sync", "pool")
        assert store.options.origin("flush_mode") == "environment RMQ_STORE_FLUSH_MODE"
