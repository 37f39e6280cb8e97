/** Log-linear histogram of nanoseconds, 32 steps per doubling (error below 3.2 %). */
final class Hist {
    final long[] c = new long[64 * 32];
    long n, max;
    synchronized void addShared(long v) { add(v); }
    void add(long v) { c[slot(v)]++; n++; if (v > max) max = v; }
    static int slot(long v) {
        if (v < 32) return (int) Math.max(v, 0);
        int e = 63 - Long.numberOfLeadingZeros(v);
        return (e - 4) * 32 + (int) ((v >>> (e - 5)) & 31);
    }
    static long value(int s) {
        if (s < 32) return s;
        int e = s / 32 + 4;
        return ((32L + s % 32) << (e - 5)) + (1L << (e - 5)) / 2;
    }
    void merge(Hist h) { for (int i = 0; i < c.length; i++) c[i] += h.c[i]; n += h.n; max = Math.max(max, h.max); }
    double us(double q) {
        long want = (long) Math.ceil(q * n), s = 0;
        for (int i = 0; i < c.length; i++) { s += c[i]; if (s >= want && c[i] > 0) return Math.min(value(i), max) / 1000.0; }
        return max / 1000.0;
    }
    /** [[ns, count], ...] of what is not empty, as JSON. */
    String counts() {
        StringBuilder b = new StringBuilder("[");
        for (int i = 0; i < c.length; i++) {
            if (c[i] == 0) continue;
            if (b.length() > 1) b.append(',');
            b.append('[').append(Math.min(value(i), max)).append(',').append(c[i]).append(']');
        }
        return b.append(']').toString();
    }
}
