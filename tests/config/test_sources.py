"""Where values come from: profiles, TOML, broker.conf, the environment, keywords; who wins, and what each says of itself."""
import logging
import pathlib

import pytest

from rmq_store.config import sources
from rmq_store.config.load import resolve
from rmq_store.config.properties import parse
from rmq_store.errors import ConfigError

BROKER_CONF = """
# as it ships, with what people add
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 72
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
brokerIP1 = 10.1.2.3
listenPort=30911
storePathConsumeQueue=/data/consumequeue
mapedFileSizeCommitLog=65536
flushCommitLogTimed=true
wakeFlushWhenPutMessage=false
"""


@pytest.fixture
def conf(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_the_later_source_wins_and_each_is_named(conf):
    low = conf("low.toml", "flush_interval_ms = 1\nflush_pages_min = 1\ncommit_pages_min = 1\nindex_slots = 1\n"
               "put_lock = 'spin'")
    file = conf("x.toml", "flush_interval_ms = 2\nflush_pages_min = 2\ncommit_pages_min = 2\nmaxHashSlotNum = 2")
    variables = {"RMQ_STORE_FLUSH_INTERVAL_MS": "3", "RMQ_STORE_FLUSH_PAGES_MIN": "3", "RMQ_STORE_QUERY_COUNT_MAX": "",
                 "X": "1"}
    o = resolve(low, {"flush_interval_ms": 4}, config=file, environment=variables)
    assert (o.flush_interval_ms, o.flush_pages_min, o.commit_pages_min, o.index_slots, o.put_lock) == (4, 3, 2, 2, "spin")
    assert [o.origin(n) for n in ("flush_interval_ms", "flush_pages_min", "commit_pages_min", "index_slots", "put_lock",
                                  "query_count_max")] == [
        "keyword", "environment RMQ_STORE_FLUSH_PAGES_MIN", f"file {file}", f"file {file} maxHashSlotNum", f"profile {low}",
        "default"]
    given = [o.given(n) for n in ("flush_interval_ms", "flush_pages_min", "commit_pages_min", "put_lock", "query_count_max")]
    assert given == [True, True, True, False, False]
    assert not o.inferred({"index_slots": 5}).given("index_slots")


def test_a_profile_is_chosen_by_keyword_then_environment_then_file(conf):
    file = conf("x.toml", "profile = 'hdd'")
    assert resolve(config=file).origin("write_path") == "profile hdd"
    assert resolve(config=file, environment={"RMQ_STORE_PROFILE": "ssd"}).origin("write_path") == "profile ssd"
    assert resolve("nvme", config=file, environment={"RMQ_STORE_PROFILE": "ssd"}).origin("write_path") == "profile nvme"
    assert resolve(environment={"RMQ_STORE_CONFIG": str(file)}).origin("write_path") == "profile hdd"


def test_a_broker_conf_is_read_as_it_is(conf, caplog):
    caplog.set_level(logging.INFO, logger="rmq_store")
    file = conf("broker.conf", BROKER_CONF)
    o = resolve(config=file)
    assert (o.flush_mode, o.segment_size_bytes, o.store_host, o.flush_wake) == ("sync", 65536, "10.1.2.3:30911", "timed")
    assert o.origin("store_host") == f"file {file} brokerIP1 and listenPort"
    assert [r.message for r in caplog.records if r.event == "OPTIONS_IGNORED"] == [
        f"ignored 4 keys of file {file}, which are options of the broker and not of the store: brokerClusterName, brokerId, "
        "brokerName, storePathConsumeQueue"]


@pytest.mark.parametrize(("lines", "host"), [
    ("listenPort=1", "127.0.0.1:1"), ("brokerIP1=::1", "[::1]:10911"), ("brokerIP1=broker.example", "127.0.0.1:10911"),
    ("brokerIP1=1.2.3.4\nstore_host=5.6.7.8:9", "5.6.7.8:9")])
def test_the_store_host_of_a_broker_conf(conf, lines, host):
    assert resolve(config=conf("broker.conf", lines)).store_host == host


@pytest.mark.parametrize(("name", "text", "words"), [
    ("broker.conf", "enableControllerMode=true", "not supported: this store speaks the classic HA protocol only"),
    ("broker.conf", "flushDiskTyp=SYNC_FLUSH", "did you mean flushDiskType?"),
    ("broker.conf", "maxIndexNum=x", "option maxIndexNum (our index_entries_max) is 'x': expected a whole number (file"),
    ("broker.conf", "a=\\u12", "is not a properties file"),
    ("x.toml", "flush_mode = ", "is not a TOML file"),
    ("x.toml", "[flush]\nmode = 'sync'", "has a table [flush]"),
    ("x.toml", "flush_interval_ms = 1.5", "expected a whole number"),
    ("x.toml", "profile = 'nosuch'", "profile 'nosuch' is unknown"),
])
def test_what_a_file_may_not_say(conf, name, text, words):
    with pytest.raises(ConfigError) as error:
        resolve(config=conf(name, text))
    assert words in str(error.value)


def test_sources_that_are_not_there(tmp_path):
    for keywords in ({"config": tmp_path / "none.conf"}, {"profile": tmp_path / "none.toml"}):
        with pytest.raises(ConfigError, match="does not exist"):
            resolve(**keywords)
    with pytest.raises(ConfigError, match="is a directory"):
        resolve(config=tmp_path)
    with pytest.raises(ConfigError, match="expected a path"):
        resolve(config=7)


def test_misspelt_variables_are_errors_others_are_somebody_else_s(caplog):
    caplog.set_level(logging.INFO, logger="rmq_store")
    with pytest.raises(ConfigError, match="RMQ_STORE_FLUSH_MOD is unknown: did you mean RMQ_STORE_FLUSH_MODE"):
        resolve(environment={"RMQ_STORE_FLUSH_MOD": "sync"})
    with pytest.raises(ConfigError, match="RMQ_STORE_FLUSH_MODE is 'maybe'"):
        resolve(environment={"RMQ_STORE_FLUSH_MODE": "maybe"})
    others = {"RMQ_STORE_SERVICE_HOST": "10.0.0.1", "RMQ_STORE_DEBUG": "1", "RMQ_STORE_MODE": ""}
    assert resolve(environment=others) == resolve()
    assert "RMQ_STORE_SERVICE_HOST" in caplog.text and "RMQ_STORE_DEBUG" not in caplog.text


def test_the_user_s_own_profiles(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = pathlib.Path(sources.user_profiles())
    assert own == tmp_path / "rmq_store" / "profiles" and sources.user_profile_names() == []
    own.mkdir(parents=True)
    (own / "mine.toml").write_text("description = 'x'\nput_lock = 'spin'\n")
    assert sources.user_profile_names() == ["mine"] and sources.profile("mine").description == "x"
    assert resolve("mine").put_lock == "spin"
    assert resolve(str(own / "mine.toml")).origin("put_lock") == f"profile {own / 'mine.toml'}"
    (own / "twice.toml").write_text("profile = 'hdd'")
    with pytest.raises(ConfigError, match="write the options of both into one"):
        resolve("twice")


def test_built_in_profiles_say_what_they_are_for():
    assert sources.profile_names() == ["cloud_block", "container", "dev", "durable", "hdd", "low_latency", "nvme", "ssd",
                                       "test", "tmpfs"]
    for name in sources.profile_names():
        assert sources.profile(name).description and sources.profile(name).entries


@pytest.mark.parametrize(("data", "expected"), [
    (b"a=b", {"a": "b"}), (b"a = b ", {"a": "b "}), (b"  a:b", {"a": "b"}), (b"a b c", {"a": "b c"}), (b"a", {"a": ""}),
    (b"a==b", {"a": "=b"}), (b"#a=b\n!c=d\n\n \t\n", {}), (b"a=1\na=2", {"a": "2"}),
    (b"a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
    (b"a=b\\\n   c", {"a": "bc"}), (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}), (b"a\\=b=c", {"a=b": "c"}),
    (b"a\\ b=c", {"a b": "c"}),
    (b"a=\\u0041\\t\\q", {"a": "A\tq"}), (b"a=b\\\n#c", {"a": "b#c"}), (b"a=\xe9", {"a": "\xe9"}), ("a=é".encode(), {"a": "é"}),
    (b"\xef\xbb\xbfa=b", {"a": "b"}), (b"a=b\\", {"a": "b"}), (b"=b", {"": "b"}),
])
def test_properties_as_java_reads_them(data, expected):
    assert parse(data) == expected
