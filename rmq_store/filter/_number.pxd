# Text -> numbers as Java reads them (Integer.valueOf, Long.valueOf, Double.valueOf of OpenJDK 17). Pure functions, no
# allocation; any thread. Never read past `size`.
from libc.stdint cimport int32_t, int64_t


# Optional sign and decimal digits, of any script with its digits below U+10000, up to `limit` (a negative number: limit + 1).
# False: not such a number.
cdef bint java_whole(const char *text, int32_t size, int64_t limit, int64_t *value) noexcept nogil
# A floating-point literal between blanks: decimal or hexadecimal, NaN, Infinity, with a suffix d or f. False: none.
cdef bint java_double(const char *text, int32_t size, double *value) noexcept nogil
# Double.compareTo: -0.0 is below 0.0, NaN is equal to itself and above all others.
cdef int java_order(double left, double right) noexcept nogil
