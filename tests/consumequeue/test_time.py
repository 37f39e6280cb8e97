"""The rules of upstream's search by time, beyond what the golden answers show: upper bounds, edges, unreadable records."""
import os

import pytest

from rmq_store.queues.consumequeue._time import offset_by_time

# Store times of 25 entries in files of 10: several equal, also across a file's end.
TIMES = [10, 10, 20, 20, 20, 30, 40, 40, 50, 50, 50, 50, 60, 70, 70, 80, 90, 90, 90, 90, 95, 99, 99, 99, 120]


def timed(table_at):
    table = table_at()
    for i in range(len(TIMES)):
        table.put(b"T", 0, i * 100, 100, i, TIMES[i], i)
    table.publish()
    return table


def ask(table, timestamp, rule, **more):
    return offset_by_time(table, b"T", 0, timestamp, lambda at, _: TIMES[at // 100], rule=rule, **more)


@pytest.mark.parametrize("timestamp", [0, 9, 10, 11, 20, 25, 30, 39, 40, 49, 51, 60, 75, 90, 91, 99, 100, 119, 120, 121])
def test_bounds(table_at, timestamp):
    """5.3.3 finds the first equal one within the file whose last time reaches; where nothing is equal, the neighbour."""
    table = timed(table_at)
    lower = next((i for i, t in enumerate(TIMES) if t >= timestamp), len(TIMES))
    assert ask(table, timestamp, "lower") == lower
    upper = max((i for i, t in enumerate(TIMES) if t <= timestamp), default=0)
    assert ask(table, timestamp, "upper") == upper


def test_equal_times_across_a_file(table_at):
    table = timed(table_at)
    assert ask(table, 50, "lower") == 8         # the first file's
    assert ask(table, 50, "upper") == 11        # the second file's


def test_nearest_goes_by_modification_times(table_at, tmp_path):
    table = timed(table_at)
    paths = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())
    for path, modified in zip(paths, (0.050, 0.090, 0.120), strict=True):
        os.utime(path, (modified, modified))
    assert ask(table, 0, "nearest") == 0
    assert ask(table, 30, "nearest") == 5
    assert ask(table, 34, "nearest") == 5       # 4 from 30, 6 from 40
    assert ask(table, 35, "nearest") == 5       # as near to both: the earlier one
    assert ask(table, 36, "nearest") == 6
    assert ask(table, 51, "nearest") == 11
    assert ask(table, 1000, "nearest") == 24
    os.utime(paths[0], (1, 1))                  # touched: now every search ends in the first file
    assert ask(table, 95, "nearest") == 9


def test_below_the_start_of_the_log(table_at):
    table = timed(table_at)
    table.correct_min(1200)
    for rule in ("lower", "upper", "nearest"):
        assert ask(table, 1, rule, physical_min=1200) >= (12 if rule != "nearest" else 0)
    assert ask(table, 70, "lower", physical_min=1200) == 13


def test_unreadable_records(table_at):
    table = timed(table_at)
    assert offset_by_time(table, b"T", 0, 50, lambda at, size: -1, rule="nearest") == 0
    assert offset_by_time(table, b"T", 0, 50, lambda at, size: -1, rule="lower") == 25
    with pytest.raises(RuntimeError, match="log"):
        offset_by_time(table, b"T", 0, 50, _broken, rule="lower")


def _broken(at, size):
    raise RuntimeError("no log")


def test_an_empty_queue(table_at):
    table = table_at()
    table.add_queue(b"T", 0)
    for rule in ("lower", "upper", "nearest"):
        assert ask(table, 5, rule) == 0
    with pytest.raises(KeyError):
        offset_by_time(table, b"U", 0, 5, _broken)
