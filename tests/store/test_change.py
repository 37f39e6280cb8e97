"""The table of options says of each what may change it: a call while the store is open, another open, or nothing. So it is."""
import pytest

from rmq_store import MessageStore, errors
from rmq_store.config.options import OPTIONS

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 20 * 100, "index_slots": 100, "index_entries_max": 1000,
         "message_size_max_bytes": 1000}
# Whose other value is not simply another one: it needs something here, or must not delete, or fill a disk.
VALUES = {"store_host": "[::1]:1", "delay_levels": (1000, 2000), "retention_hours": 1_000_000, "retention_hours_of_day": "05",
          "disk_full_pct": 100, "stats_file_interval_ms": 1000, "pool_window_size_bytes": 8192, "flush_backend": "msync",
          "clean_files_max": 1}
# They change the process for good, or what a store holds or shows, and have tests of their own.
ELSEWHERE = {"signals", "guard_maps", "readonly", "follow", "skip_holes", "commitlog_path", "commitlog_paths_readonly",
             "consumequeue_path", "index_path",
             "duplication_enabled", "record_crc_required", "put_hooks", "dispatchers", "role", "ha_listen", "ha_master",
             "ha_master_broker", "in_sync_replicas", "min_in_sync_replicas",
             "all_ack_in_sync_state_set"}


@pytest.fixture
def values(tmp_path):
    """What holds without further options: Options."""
    with MessageStore.open(tmp_path / "values", **SMALL) as store:
        return store.options


def another(option, values):
    """A value that is not the one that holds."""
    now = values[option.name]
    if option.name in VALUES:
        return VALUES[option.name]
    if option.kind == "bool":
        return not now
    if option.choices:
        return next(c for c in option.choices if c != now)
    return now + 1 if now is not None and now < option.high else option.low


def kind(change):
    return [o for o in OPTIONS if o.change == change and o.name not in ELSEWHERE]


def test_a_call_changes_what_is_live_and_nothing_else(tmp_path, values):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for option in kind("live"):
            value = option.convert(another(option, values))
            assert store.options[option.name] != value, option.name
            store.reconfigure(**{option.name: value})
            assert store.options[option.name] == value and store.options.origin(option.name) == "reconfigure"
        for option in [*kind("reopen"), *kind("fixed")]:
            before = store.options
            with pytest.raises(errors.ConfigError, match=f"option {option.name} cannot change while the store is open"):
                store.reconfigure(**{option.name: another(option, values)})
            assert store.options is before


def test_another_open_changes_what_needs_one(tmp_path, values):
    """Whatever it was opened with, it is the same store, and takes messages."""
    put = 0
    for option in [None, *kind("reopen"), *kind("live"), None]:
        more = {} if option is None else {option.name: another(option, values)}
        with MessageStore.open(tmp_path / "s", **{**SMALL, **more}) as store:
            assert not store.stats()["recovered"], more
            if option is not None:
                assert store.options[option.name] == option.convert(more[option.name]), more
            assert [bytes(m.body) for m in store.scan("T", 0)] == [b"%d" % i for i in range(put)], more
            store.put("T", b"%d" % put, keys="k", wait=True)
            put += 1
            assert store.wait_dispatched(30), more
    assert put > 40


@pytest.mark.parametrize("name", ["segment_size_bytes", "consumequeue_file_size_bytes", "index_slots", "index_entries_max"])
def test_no_open_changes_what_files_are_like(tmp_path, name):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x", keys="k")
    with pytest.raises((errors.StoreRefusesToLoad, errors.CorruptionError), match=r"expected .* bytes.* found \d+ bytes"):
        MessageStore.open(tmp_path / "s", **{**SMALL, name: 2 * SMALL[name]})
    with MessageStore.open(tmp_path / "s") as store:        # nobody need know them
        assert store.options[name] == SMALL[name] and store.options.origin(name) == "files"
        assert len(list(store.query_key("T", "k"))) == 1
