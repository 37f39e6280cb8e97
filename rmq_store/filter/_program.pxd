# A SQL92 filter as a flat program: steps over values, evaluated over the stored properties of a record. A step leads only
# forward and the stack's depth is known beforehand, so an evaluation needs no recursion, no allocation, no lock and no Python;
# any thread, any number at a time. Semantics: RocketMQ 5.3.3, filter/.../expression.
from libc.stdint cimport int32_t, int64_t


cdef enum:
    FILTER_NAMES_MAX = 64
    FILTER_STACK_MAX = 256

cdef enum Truth:
    FILTER_FAILED = -2          # a property cannot be compared: RocketMQ raises, and takes the message for unmatched
    FILTER_NULL = -1
    FILTER_FALSE = 0
    FILTER_TRUE = 1

cdef struct FilterValue:
    const char *text
    int64_t whole               # of a boolean, an integer, a long
    double real
    int32_t size                # of the text
    int32_t type

cdef struct FilterOperand:
    int32_t kind
    int32_t index

cdef struct FilterStep:
    FilterOperand left, right
    int32_t operation
    int32_t negated
    int32_t skip

cdef struct FilterProgram:
    const FilterStep *steps
    const FilterValue *literals
    const FilterValue *names    # of the properties, as text
    int32_t step_count
    int32_t name_count


# Whether the stored properties fulfil the program: Truth.
cdef int filter_evaluate(const FilterProgram *p, const char *properties, int32_t size) noexcept nogil


cdef class SqlFilter:
    cdef FilterProgram program
    cdef void *memory
    cdef readonly str sql

    cdef int _load(self, object made) except -1


# For an argument `sql`: str or SqlFilter -> SqlFilter, None -> None. Raises FilterIllegal, ArgumentIllegal.
cpdef SqlFilter filter_of(object sql)
cpdef SqlFilter chosen_filter(object sql, object tags)
