"""`rmqstore stat` beside a store that publishes its figures, and beside one that does not, or no longer does."""
import json
import time

import pytest

from rmq_store import MessageStore
from rmq_store.services.statistics.live import ITEMS_MAX, live_path, read_live
from rmq_store.services.statistics.windows import Windows

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}
OPTIONS = [part for name, value in SMALL.items() for part in ("-o", f"{name}={value}")]


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", stats_file_interval_ms=3_600_000, **SMALL) as s:
        while read_live(s.path)[0] is None:
            time.sleep(0.001)
        yield s


def published(store, count):
    for _ in range(count):
        store.put("T", b"x" * 100, wait=True)
    assert store.wait_dispatched(30)
    store.offsets.commit("G", "T", 0, 1)
    assert store._publisher._write()


def test_watch_shows_the_live_figures(store, rmqstore, json_lines):
    published(store, 5)
    code, (line,) = json_lines("stat", store.path, "--watch", "0.01", "--times", "1", *OPTIONS)
    assert (code, line["source"], line["waiting"], line["log_files"]) == (0, "live", 4, 1)
    assert line["puts_s"] > 0 and line["put_bytes_s"] > 500 and line["flush_p99_us"] > 0 and line["unflushed_bytes"] == 0
    code, out, _ = rmqstore("stat", store.path, "-w", "0.01", "-n", "2", *OPTIONS)
    why, head, *lines = out.splitlines()
    assert code == 0 and why.startswith("live figures, 0.") and head.split()[:3] == ["time", "puts/s", "MiB/s"]
    assert len(lines) == 2 and len(lines[0]) == len(lines[1]) == len(head)


def test_stat_shows_the_last_minute_hour_and_day(store, rmqstore, json_lines):
    published(store, 5)
    _, out, _ = rmqstore("stat", store.path, *OPTIONS)
    assert "TOPIC_PUT_NUMS" not in out          # nothing is counted before the first reading
    store._windows = Windows(store.path, "DefaultCluster", at=0.0)
    store._windows.take(store, [], at=10.0)
    assert store._publisher._write()
    code, out, _ = rmqstore("stat", store.path, *OPTIONS)
    (row,) = (line.split() for line in out.splitlines() if line.startswith("TOPIC_PUT_NUMS"))
    assert code == 0 and row == ["TOPIC_PUT_NUMS", "T", "5", "0", "0", "0.5"]
    (live,) = (line for line in json_lines("stat", store.path, *OPTIONS)[1] if line["kind"] == "live")
    assert live["items"] == store.stats_items()


def test_only_the_largest_items_are_published(store):
    for i in range(ITEMS_MAX + 5):
        for _ in range(2 if i == 50 else 1):
            store.put(f"T{i}", b"x")
    assert store.wait_dispatched(30)
    store._windows = Windows(store.path, "DefaultCluster", at=0.0)
    store._windows.take(store, [], at=10.0)
    assert store._publisher._write()
    rows = read_live(store.path)[0]["items"]["TOPIC_PUT_NUMS"]
    assert len(rows) == ITEMS_MAX and next(iter(rows)) == "T50" and len(store.stats_items()["TOPIC_PUT_NUMS"]) == ITEMS_MAX + 5


def test_rates_are_those_between_two_lines(store, monkeypatch, json_lines):
    """While `stat` sleeps, the store goes on: no clock but the figures' own decides."""
    published(store, 1)
    before = read_live(store.path)[0]

    def sleep(seconds):
        while int(time.time() * 1000) <= before["written_ms"]:
            pass
        published(store, 7)

    monkeypatch.setattr("rmq_store.cli.stat.time.sleep", sleep)
    _, (_, line) = json_lines("stat", store.path, "-w", "1", "-n", "2", *OPTIONS)
    now = read_live(store.path)[0]
    assert line["puts_s"] == pytest.approx(7 / ((now["written_ms"] - before["written_ms"]) / 1000))


def test_what_needs_attention_is_said(store, rmqstore, monkeypatch):
    published(store, 1)
    figures, age = read_live(store.path)
    figures["stats"] |= {"errno": 5, "disk_full": True, "put_lock_ms": 900, "running_flags": ["NOT_WRITEABLE", "DISK_FULL"]}
    monkeypatch.setattr("rmq_store.cli.live.read_live", lambda root: (figures, age))
    _, out, _ = rmqstore("stat", store.path, "-w", "1", "-n", "1", *OPTIONS)
    assert out.splitlines()[-1].endswith("FAILED, errno 5  DISK FULL  put lock held for 900 ms  NOT WRITEABLE")


def test_without_live_figures_it_says_so_and_reads_files(store, tmp_path, rmqstore, json_lines, monkeypatch):
    published(store, 3)
    monkeypatch.setattr("rmq_store.cli.stat.time.sleep", lambda seconds: store.close())
    code, lines = json_lines("stat", store.path, "-w", "1", "-n", "2", *OPTIONS)
    assert code == 0 and [x["source"] for x in lines] == ["live", "files"]
    assert lines[1]["messages"] == 3 and lines[1]["bytes_s"] == 0
    code, out, _ = rmqstore("stat", tmp_path / "s", "-w", "1", "-n", "1", *OPTIONS)
    assert code == 0 and "no process has the store open" in out.splitlines()[0] and "messages/s" in out.splitlines()[1]
    _, out, _ = rmqstore("stat", tmp_path / "s", "-w", "1", "-n", "1", "-t", "T", *OPTIONS)
    assert len(out.splitlines()) == 2


def test_stat_shows_all_of_it_once(store, rmqstore):
    published(store, 2)
    code, out, _ = rmqstore("stat", store.path, "--json", *OPTIONS)
    (live,) = [x for x in map(json.loads, out.splitlines()) if x["kind"] == "live"]
    assert live["stats"]["puts"] == 2 and live["groups"] == {"G": {"behind": 1, "lost": 0}}
    assert code == 0        # open elsewhere, and well
    _, out, _ = rmqstore("stat", store.path, *OPTIONS)
    assert "live figures, " in out and "p99.9 µs" in out and "dispatch_lag" in out and "gets that found" in out
    store.close()
    _, out, _ = rmqstore("stat", store.path, *OPTIONS)
    assert "live figures" not in out


@pytest.mark.parametrize(("arguments", "words"), [
    (("--watch", "0"), "--watch 0.0: give"), (("--watch", "-1"), "--watch -1.0: give"),
    (("--watch", "nan"), "--watch nan: give"), (("--watch", "inf"), "--watch inf: give"),
    (("--watch", "1", "--times", "0"), "--times 0: give"),
    (("--times", "2"), "--times 2 needs --watch")])
def test_what_is_no_period(store, rmqstore, arguments, words):
    code, out, err = rmqstore("stat", store.path, *arguments, *OPTIONS)
    assert (code, out) == (64, "") and words in err


def test_watching_the_files_of_an_open_store_warns_of_nothing(store, rmqstore):
    code, out, err = rmqstore("stat", store.path, "-w", "0.001", "-n", "4", "-t", "T", *OPTIONS)
    assert code == 0 and len(out.splitlines()) == 5 and not err


@pytest.mark.parametrize("spoil", [
    {"recent": {}}, {"recent": 7}, {"stats": {}}, {"rates": {"puts": [1]}}, {"groups": {"G": 7}}, {"delayed": "x", "groups": 7},
    {"stats": {"puts": "x"}}, None])
@pytest.mark.parametrize("arguments", [["--watch", "0.01", "--times", "1"], []])
def test_figures_of_another_shape_are_damaged_ones(store, rmqstore, spoil, arguments):
    published(store, 1)
    path = live_path(store.path)
    with open(path) as file:
        figures = json.load(file)
    with open(path, "w") as file:
        file.write("[" * 100_000 if spoil is None else json.dumps({
            name: (value | spoil[name] if isinstance(spoil.get(name), dict) and spoil[name] else spoil.get(name, value))
            for name, value in figures.items()}))
    code, out, err = rmqstore("stat", store.path, *arguments, *OPTIONS)
    assert code == 0, err
    assert not arguments or (f"{path} is damaged" in out and "messages/s" in out)
