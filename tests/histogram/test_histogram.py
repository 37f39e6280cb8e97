"""The histogram that verdicts and statistics come from: close to exact quantiles, and nothing lost on the way."""
import json
import pickle
import random

import pytest

from rmq_store.base.histogram._histogram import Histogram


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_are_close_to_the_exact_ones(seed: int) -> None:
    rng = random.Random(seed)
    values = [int(rng.lognormvariate(7, 2)) for _ in range(5000)]
    histogram = Histogram(values)
    exact = sorted(values)
    for q in (.5, .9, .99, .999):
        assert histogram.quantile(q) == pytest.approx(exact[int(q * len(exact)) - 1], rel=0.01, abs=1)
    assert (histogram.count, histogram.lowest, histogram.highest) == (len(values), exact[0], exact[-1])
    assert histogram.mean == pytest.approx(sum(values) / len(values))


def test_buckets_cover_all_numbers_in_order() -> None:
    numbers = [*range(5000), *(1 << k for k in range(13, 40)), *((1 << k) - 1 for k in range(13, 41))]
    end = -1
    for low, high, count in Histogram(numbers).buckets():
        assert low > end and count == sum(low <= n <= high for n in numbers)
        assert high - low <= max(low / 64, 0)
        end = high


def test_extremes() -> None:
    huge = Histogram([1 << 62, -5])
    assert (huge.highest, huge.lowest, huge.count) == (1 << 62, 0, 2)
    assert huge.buckets()[-1][:2] == (127 << 33, 1 << 62)
    empty = Histogram()
    assert (empty.highest, empty.lowest, empty.mean, empty.quantile(.99), empty.buckets()) == (0, 0, 0.0, 0, [])
    one = Histogram([1000])
    assert {one.quantile(q) for q in (0, .5, 1)} == {1000}


def test_merged_histograms_count_everything() -> None:
    one, other = Histogram([1, 100, 10_000]), Histogram([5, 1_000_000])
    one.merge(other)
    assert one.buckets() == Histogram([1, 5, 100, 10_000, 1_000_000]).buckets()
    assert (one.count, one.lowest, one.highest, one.mean) == (5, 1, 1_000_000, 1010106 / 5)
    one.reset()
    assert one.count == one.highest == 0 and one.buckets() == []


def test_correction_adds_the_waits_that_a_stall_hid() -> None:
    corrected = Histogram([95]).corrected(10)       # eight more should have begun meanwhile
    assert corrected.buckets() == Histogram([95, 85, 75, 65, 55, 45, 35, 25, 15]).buckets()
    assert (corrected.lowest, corrected.highest, corrected.mean) == (15, 95, 55)
    assert Histogram([9, 19]).corrected(10).buckets() == Histogram([9, 19]).buckets()
    assert Histogram([50]).corrected(0).count == 1


@pytest.mark.parametrize("seed", range(5))
def test_correction_is_that_of_wait_by_wait(seed: int) -> None:
    rng = random.Random(seed)
    interval = rng.randrange(1, 5000)
    for value in (rng.randrange(64), rng.randrange(1 << 20), rng.randrange(1 << 24)):
        one = Histogram([value])
        exact = [value, *range(value - interval, interval - 1, -interval)]
        corrected = one.corrected(interval)
        assert corrected.to_dict() == Histogram(exact).to_dict()


def test_correction_of_a_long_stall_ends() -> None:
    assert Histogram([10**12] * 3).corrected(100).count == 3 * 10**10


@pytest.mark.parametrize("copy", [lambda h: Histogram.from_dict(json.loads(json.dumps(h.to_dict()))),
                                  lambda h: pickle.loads(pickle.dumps(h))])
def test_it_travels(copy) -> None:
    for values in ([], [0], [7, 123456, 1 << 50]):
        there = copy(Histogram(values))
        assert there.to_dict() == Histogram(values).to_dict()
        assert there.mean == Histogram(values).mean


@pytest.mark.parametrize("counts", [[[10**6, 1]], [[-1, 1]], [[3, 0]]])
def test_foreign_counts_are_refused(counts) -> None:
    with pytest.raises(ValueError, match="expected buckets"):
        Histogram.from_dict({"total": 0, "lowest": 0, "highest": 0, "counts": counts})


@pytest.mark.parametrize("seed", range(5))
def test_what_was_added_since_a_copy(seed: int) -> None:
    rng = random.Random(seed)
    first, second = ([int(rng.lognormvariate(7, 2)) for _ in range(n)] for n in (3000, 500))
    all_of_it, copy = Histogram(first), Histogram(first)
    for value in second:
        all_of_it.add(value)
    since, exact = all_of_it.since(copy), Histogram(second)
    assert since.buckets() == exact.buckets() and (since.count, since.mean) == (500, exact.mean)
    for q in (.5, .99):
        assert since.quantile(q) == pytest.approx(exact.quantile(q), rel=0.01)
    assert since.highest >= max(second) and since.highest == pytest.approx(max(second), rel=0.016)
    assert since.lowest <= min(second) and since.lowest == pytest.approx(min(second), rel=0.016, abs=1)
    assert copy.count == 3000


def test_since_knows_extremes_that_are_new() -> None:
    before = Histogram([1000, 2000])
    now = Histogram([1000, 2000, 123_457, 77])
    assert (now.since(before).highest, now.since(before).lowest) == (123_457, 77)
    assert now.since(Histogram()).to_dict() == now.to_dict()
    assert now.since(now).to_dict() == Histogram().to_dict()
    with pytest.raises(ValueError, match="no earlier copy"):
        before.since(now)
    beyond = Histogram([1 << 50])
    beyond.add(1 << 41)
    assert beyond.since(Histogram([1 << 50])).highest == 1 << 50       # one bucket for all of them
