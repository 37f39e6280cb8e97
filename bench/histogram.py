"""Log-linear histogram of nanoseconds: 32 steps for each doubling, so a quantile is at most 3.2 % off; the maximum is exact.

The same buckets as the Java harness (tools/interop/src/Hist.java), so that quantiles of both sides compare.
"""
from collections.abc import Iterable

STEPS = 32


def slot(ns: int) -> int:
    """The bucket of a value."""
    if ns < STEPS:
        return max(ns, 0)
    exponent = ns.bit_length() - 1
    return (exponent - 4) * STEPS + ((ns >> (exponent - 5)) & (STEPS - 1))


def middle(bucket: int) -> int:
    """The value that stands for a bucket."""
    if bucket < STEPS:
        return bucket
    shift = bucket // STEPS - 1
    return ((STEPS + bucket % STEPS) << shift) + (1 << shift) // 2


class Histogram:
    """Counts of durations. Not thread-safe: one per thread, then `merge`."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.highest = 0
        for ns in values:
            self.add(ns)

    def add(self, ns: int) -> None:
        bucket = slot(ns)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.count += 1
        self.highest = max(self.highest, ns)

    def merge(self, other: "Histogram") -> None:
        for bucket, n in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + n
        self.count += other.count
        self.highest = max(self.highest, other.highest)

    def quantile(self, q: float) -> int:
        """Nanoseconds that a share `q` of the values do not exceed."""
        want, seen = q * self.count, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= want:
                return min(middle(bucket), self.highest)
        return self.highest

    def figures(self) -> dict[str, float]:
        """p50, p99, p99.9 and the maximum in microseconds, named as in the Java harness."""
        return {"p50_us": self.quantile(.5) / 1e3, "p99_us": self.quantile(.99) / 1e3,
                "p999_us": self.quantile(.999) / 1e3, "max_us": self.highest / 1e3}
