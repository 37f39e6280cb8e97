"""The table of (age, hour, disk usage) of the reference: when a file goes, and when puts are refused (behaviour §12)."""
import itertools
import os
from types import SimpleNamespace

import pytest

from rmq_store.services.cleaning.rules import Limits, Verdict, expired, judge, used_percent

UPSTREAM = Limits((4,), 75, 85, 90, True)

# hour, commit-log disk, queue disk -> reason, any age, puts refused (None: as before)
TABLE = [
    # at the hour, whatever the disk
    (4, 10, 10, "time", False, False), (4, 75, 75, "time", False, False), (4, 80, 80, "time", False, False),
    (4, 86, 86, "time", True, None), (4, 91, 91, "time", True, True),
    # at other hours the disk decides; each limit itself is still fine
    (3, 10, 10, "", False, False), (5, 75, 10, "", False, False), (0, 76, 10, "space", False, False),
    (23, 85, 85, "space", False, False), (12, 86, 0, "space", True, None), (12, 90, 0, "space", True, None),
    (12, 91, 0, "space", True, True), (12, 100, 100, "space", True, True),
    # the disk of the queues counts as well
    (12, 10, 76, "space", False, False), (12, 10, 86, "space", True, None), (12, 10, 91, "space", True, True),
    (12, 80, 91, "space", True, True),
    # a disk that nobody can measure gives a reason to delete what is old enough, and only that
    (12, -1, -1, "space", False, False), (12, -1, 10, "space", False, False), (4, -1, 10, "time", False, False),
]


@pytest.mark.parametrize(("hour", "log", "queue", "reason", "any_age", "full"), TABLE)
def test_upstreams_table(hour, log, queue, reason, any_age, full):
    assert judge(hour, log, queue, UPSTREAM) == Verdict(reason, any_age, full)


@pytest.mark.parametrize("used", [86, 91, 100])
def test_without_force_nothing_young_goes(used):
    verdict = judge(12, used, used, Limits((4,), 75, 85, 90, False))
    assert verdict.reason == "space" and not verdict.any_age


def test_without_a_limit_for_puts_nothing_is_said_of_them():
    limits = Limits((4,), 75, 85, None, True)
    assert {judge(hour, used, used, limits).full for hour, used in itertools.product((3, 4), range(-1, 101))} == {None}


def test_puts_are_refused_until_the_disk_is_back_below_the_lower_limit():
    refused, seen = False, []
    for used in (84, 89, 90, 91, 90, 86, 85, 88, 95):
        full = judge(12, used, used, UPSTREAM).full
        refused = refused if full is None else full
        seen.append(refused)
    assert seen == [False, False, False, True, True, True, False, False, True]


def test_several_hours():
    limits = Limits((4, 16), 75, 85, 90, True)
    assert [h for h in range(24) if judge(h, 10, 10, limits).reason] == [4, 16]


def test_age_is_counted_to_the_millisecond():
    hour = 3_600_000
    assert not expired(1000, 1000 + 72 * hour - 1, 72 * hour)
    assert expired(1000, 1000 + 72 * hour, 72 * hour)
    assert expired(1000, 1000, 0) and not expired(1001, 1000, 0)     # a clock that went back deletes nothing


@pytest.mark.parametrize(("blocks", "free", "available", "percent"), [
    (100, 50, 50, 50), (1000, 250, 250, 75), (1000, 249, 249, 76),          # rounded up
    (1000, 300, 200, 78),       # what is kept for root is no room: 700 of 900
    (100, 100, 100, 0), (100, 0, 0, 100), (0, 0, 0, -1)])
def test_disk_usage_as_upstream_counts_it(monkeypatch, blocks, free, available, percent):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=blocks, f_bfree=free, f_bavail=available))
    assert used_percent("/") == percent


def test_a_disk_that_is_not_there(tmp_path):
    assert used_percent(str(tmp_path / "absent")) == -1
    assert 0 <= used_percent(str(tmp_path)) <= 100


@pytest.mark.parametrize(("refused_pct", "full"), [(None, None), (90, None), (91, None), (89, False), (86, False)])
def test_between_the_limits_puts_are_taken_where_the_limit_was_raised(refused_pct, full):
    assert [judge(12, used, 0, UPSTREAM, refused_pct).full for used in (85, 88, 91)] == [False, full, True]
