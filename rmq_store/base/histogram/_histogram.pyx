"""Histogram: counts of durations with quantiles. Contract in _histogram.pxd, native/include/rmq_histogram.h."""
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset


cdef void _add_hidden(rmq_histogram *h, int64_t value, int64_t times, int64_t interval) noexcept nogil:
    # Bucket by bucket, not wait by wait: a stall of a second hides millions of waits of 100 ns.
    cdef int64_t low, high, first, last
    cdef int slot
    if value < 2 * interval:
        return
    for slot in range(rmq_histogram_slot(interval), rmq_histogram_slot(value - interval) + 1):
        low = max(rmq_histogram_low(slot), interval)
        high = value - interval
        if slot < RMQ_HISTOGRAM_SLOTS - 1:
            high = min(high, rmq_histogram_low(slot + 1) - 1)
        first = (value - high + interval - 1) // interval       # low <= value - k x interval <= high
        last = (value - low) // interval
        if last < first:
            continue
        h.counts[slot] += times * (last - first + 1)
        h.count += times * (last - first + 1)
        h.total += times * ((last - first + 1) * value - interval * ((first + last) * (last - first + 1) // 2))
    h.below = max(h.below, INT64_MAX - (value - (value - interval) // interval * interval))


cdef class Histogram:
    """Durations in nanoseconds in log-linear buckets: 64 for each doubling, so a quantile is at most 0.8 % off.

    Maximum, minimum and mean are exact; durations above 2**40 ns (18 minutes) share one bucket; negative ones count as 0.
    Memory: 18 KiB, however much is added. Thread-safety: under the GIL every method is one step. After HdrHistogram (Gil Tene).
    """

    def __cinit__(self, values=()):
        self.h = <rmq_histogram *> calloc(1, sizeof(rmq_histogram))
        if self.h == NULL:
            raise MemoryError("no memory for a histogram")
        for value in values:
            rmq_histogram_add(self.h, value)

    def __dealloc__(self):
        free(self.h)

    def add(self, int64_t ns):
        """Counts one duration."""
        rmq_histogram_add(self.h, ns)

    def merge(self, Histogram other not None):
        """Adds all that `other` counted."""
        rmq_histogram_merge(self.h, other.h)

    def corrected(self, int64_t interval_ns):
        """A new histogram with also the waits that stalls kept a closed loop from measuring, had it begun every `interval_ns`.

        For a duration v: v - interval, v - 2 x interval and so on, while at least interval_ns. Correction of coordinated
        omission as HdrHistogram's copyCorrectedForCoordinatedOmission does it. interval_ns < 1: a plain copy."""
        cdef Histogram made = Histogram()
        cdef int64_t low, high, value
        cdef int i
        made.merge(self)
        if interval_ns < 1:
            return made
        for i in range(RMQ_HISTOGRAM_SLOTS):
            if self.h.counts[i]:
                low = rmq_histogram_low(i)
                high = rmq_histogram_low(i + 1) - 1 if i < RMQ_HISTOGRAM_SLOTS - 1 else rmq_histogram_highest(self.h)
                value = min(max(low + (high - low) // 2, rmq_histogram_lowest(self.h)), rmq_histogram_highest(self.h))
                _add_hidden(made.h, value, self.h.counts[i], interval_ns)
        return made

    def since(self, Histogram before not None):
        """What was added after `before`, a copy of this histogram from then: a new histogram.

        Its extremes are exact where they are extremes of everything ever added, else those of their buckets. Raises ValueError
        where `before` counted what this one did not."""
        cdef Histogram made = Histogram()
        cdef int64_t n
        cdef int i, first = -1, last = -1
        for i in range(RMQ_HISTOGRAM_SLOTS):
            n = self.h.counts[i] - before.h.counts[i]
            if n < 0:
                raise ValueError("the other histogram is no earlier copy of this one")
            if n > 0:
                made.h.counts[i] = n
                made.h.count += n
                first = i if first < 0 else first
                last = i
        if last < 0:
            return made
        made.h.total = self.h.total - before.h.total
        made.h.highest = self.highest
        if self.highest == before.highest and last < RMQ_HISTOGRAM_SLOTS - 1:
            made.h.highest = min(self.highest, rmq_histogram_low(last + 1) - 1)
        made.h.below = INT64_MAX - (self.lowest if before.h.count == 0 or self.lowest < before.lowest
                                    else max(self.lowest, rmq_histogram_low(first)))
        return made

    def reset(self):
        """Empties it."""
        memset(self.h, 0, sizeof(rmq_histogram))

    def quantile(self, double q):
        """Nanoseconds that a share `q` (0 to 1) of the durations do not exceed; 0 while empty."""
        return rmq_histogram_quantile(self.h, q)

    @property
    def count(self):
        """How many durations were added."""
        return self.h.count

    @property
    def highest(self):
        """The longest duration in ns, exact; 0 while empty."""
        return rmq_histogram_highest(self.h)

    @property
    def lowest(self):
        """The shortest duration in ns, exact; 0 while empty."""
        return rmq_histogram_lowest(self.h)

    @property
    def mean(self):
        """Mean in ns, exact; 0.0 while empty."""
        return self.h.total / <double> self.h.count if self.h.count else 0.0

    def figures(self):
        """p50, p99, p99.9 and the maximum in microseconds: dict with p50_us, p99_us, p999_us, max_us."""
        return {"p50_us": self.quantile(.5) / 1e3, "p99_us": self.quantile(.99) / 1e3,
                "p999_us": self.quantile(.999) / 1e3, "max_us": self.highest / 1e3}

    def buckets(self):
        """The buckets that are not empty, in order: list of (lowest ns, highest ns, count)."""
        cdef int i
        result = []
        for i in range(RMQ_HISTOGRAM_SLOTS):
            if self.h.counts[i]:
                last = i == RMQ_HISTOGRAM_SLOTS - 1
                top = max(self.highest, rmq_histogram_low(i)) if last else rmq_histogram_low(i + 1) - 1
                result.append((rmq_histogram_low(i), top, self.h.counts[i]))
        return result

    def to_dict(self):
        """All of it for JSON: from_dict takes it back."""
        cdef int i
        return {"total": self.h.total, "lowest": self.lowest, "highest": self.highest,
                "counts": [[i, self.h.counts[i]] for i in range(RMQ_HISTOGRAM_SLOTS) if self.h.counts[i]]}

    @staticmethod
    def from_dict(state):
        """The histogram that to_dict told of. Raises ValueError where the counts are none of this histogram's."""
        cdef Histogram made = Histogram()
        cdef int64_t n
        cdef int slot
        for slot, n in state["counts"]:
            if not 0 <= slot < RMQ_HISTOGRAM_SLOTS or n < 1:
                raise ValueError(f"bucket {slot} with count {n}: expected buckets 0 to {RMQ_HISTOGRAM_SLOTS - 1}, counts > 0")
            made.h.counts[slot] += n
            made.h.count += n
        if made.h.count:
            made.h.total = state["total"]
            made.h.highest = state["highest"]
            made.h.below = INT64_MAX - <int64_t> state["lowest"]
        return made

    def __reduce__(self):
        return Histogram.from_dict, (self.to_dict(),)

    def __repr__(self):
        return (f"<Histogram of {self.count}: p50 {self.quantile(.5)} ns, p99.9 {self.quantile(.999)} ns, "
                f"max {self.highest} ns>")
