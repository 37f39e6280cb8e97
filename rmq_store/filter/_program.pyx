"""The evaluation of SQL92 filters, and the object that holds one; see _program.pxd"""
from collections.abc import Mapping
from functools import lru_cache

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from rmq_store.codec._properties cimport properties_bytes
from rmq_store.codec._text cimport Property, property_next, utf8_step
from rmq_store.filter._number cimport java_double, java_order, java_whole

from rmq_store import errors
from rmq_store.codec.properties import decode_properties

cdef extern from "string.h" nogil:
    void *memmem(const void *hay, size_t hay_size, const void *needle, size_t needle_size)

cdef enum:
    KIND_NONE = 0
    KIND_PROPERTY = 1
    KIND_LITERAL = 2
    KIND_STACK = 3

cdef enum:
    TYPE_NULL = 0
    TYPE_BOOLEAN = 1
    TYPE_INTEGER = 2
    TYPE_LONG = 3
    TYPE_DOUBLE = 4
    TYPE_TEXT = 5

cdef enum:
    DO_EQUAL = 1
    DO_GREATER = 2
    DO_GREATER_EQUAL = 3
    DO_LESS = 4
    DO_LESS_EQUAL = 5
    DO_IS_NULL = 6
    DO_IN = 7
    DO_CONTAINS = 8
    DO_STARTS_WITH = 9
    DO_ENDS_WITH = 10
    DO_CAST = 11
    DO_NOT = 12
    DO_AND = 13
    DO_OR = 14
    DO_SKIP_FALSE = 15
    DO_SKIP_TRUE = 16
    DO_SKIP_NULL = 17
    DO_PUSH = 18
    DO_FORGET = 19

cdef dict _KINDS = {"none": KIND_NONE, "property": KIND_PROPERTY, "literal": KIND_LITERAL, "stack": KIND_STACK}
cdef dict _TYPES = {"null": TYPE_NULL, "boolean": TYPE_BOOLEAN, "integer": TYPE_INTEGER, "long": TYPE_LONG,
                    "double": TYPE_DOUBLE, "text": TYPE_TEXT}
cdef dict _OPERATIONS = {
    "=": DO_EQUAL, ">": DO_GREATER, ">=": DO_GREATER_EQUAL, "<": DO_LESS, "<=": DO_LESS_EQUAL, "is null": DO_IS_NULL,
    "in": DO_IN, "contains": DO_CONTAINS, "startswith": DO_STARTS_WITH, "endswith": DO_ENDS_WITH, "cast": DO_CAST,
    "not": DO_NOT, "and": DO_AND, "or": DO_OR, "skip if false": DO_SKIP_FALSE, "skip if true": DO_SKIP_TRUE,
    "skip if null": DO_SKIP_NULL, "push": DO_PUSH, "forget": DO_FORGET}


# ---- text, which Java sees decoded: a broken piece of UTF-8 is one U+FFFD

cdef bint _same_text(const FilterValue *a, const FilterValue *b) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *> a.text
    cdef const uint8_t *q = <const uint8_t *> b.text
    cdef const uint8_t *p_end = p + a.size
    cdef const uint8_t *q_end = q + b.size
    cdef uint32_t left, right
    if a.size == b.size and memcmp(p, q, a.size) == 0:
        return True
    while p < p_end and q < q_end:
        p += utf8_step(p, p_end, &left)
        q += utf8_step(q, q_end, &right)
        if left != right:
            return False
    return p == p_end and q == q_end


cdef const uint8_t *_behind(const uint8_t *p, const uint8_t *end, const FilterValue *text) noexcept nogil:
    # The place behind `text`, decoded, where it stands at p; NULL: it does not.
    cdef const uint8_t *q = <const uint8_t *> text.text
    cdef const uint8_t *q_end = q + text.size
    cdef uint32_t left, right
    while q < q_end:
        if p == end:
            return NULL
        p += utf8_step(p, end, &left)
        q += utf8_step(q, q_end, &right)
        if left != right:
            return NULL
    return p


cdef bint _searched_decoded(int32_t operation, const FilterValue *value, const FilterValue *text) noexcept nogil:
    # For a text with U+FFFD, which broken pieces are equal to.
    cdef const uint8_t *p = <const uint8_t *> value.text
    cdef const uint8_t *end = p + value.size
    cdef const uint8_t *behind
    cdef uint32_t code
    while True:
        behind = _behind(p, end, text)
        if behind != NULL and (operation != DO_ENDS_WITH or behind == end):
            return True
        if operation == DO_STARTS_WITH or p == end:
            return False
        p += utf8_step(p, end, &code)


cdef bint _searched(int32_t operation, const FilterValue *value, const FilterValue *text) noexcept nogil:
    # A text without U+FFFD begins with the first byte of a character, where the decoder begins one, too: bytes are enough.
    if text.whole:
        return _searched_decoded(operation, value, text)
    if text.size > value.size:
        return False
    if operation == DO_STARTS_WITH:
        return memcmp(value.text, text.text, text.size) == 0
    if operation == DO_ENDS_WITH:
        return memcmp(value.text + (value.size - text.size), text.text, text.size) == 0
    return memmem(value.text, value.size, text.text, text.size) != NULL


cdef bint _is_in(const FilterValue *value, const FilterValue *texts, int32_t count) noexcept nogil:
    # Sorted by size and bytes. What is broken is equal to no valid text but one with U+FFFD, for which all are looked at.
    cdef int32_t low = 0, high = count, middle
    cdef int order
    if texts[0].whole:
        for middle in range(count):
            if _same_text(value, &texts[middle]):
                return True
        return False
    while low < high:
        middle = low + (high - low) // 2
        order = value.size - texts[middle].size
        if order == 0:
            order = memcmp(value.text, texts[middle].text, value.size)
        if order == 0:
            return True
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return False


cdef bint _is_true_text(const FilterValue *v) noexcept nogil:
    # Boolean.valueOf
    return (v.size == 4 and (v.text[0] | 0x20) == c't' and (v.text[1] | 0x20) == c'r' and (v.text[2] | 0x20) == c'u'
            and (v.text[3] | 0x20) == c'e')


# ---- comparison

cdef inline int _order_whole(int64_t left, int64_t right) noexcept nogil:
    return -1 if left < right else <int> (left > right)


cdef bint _convert(const FilterValue *text, int32_t type, FilterValue *to) noexcept nogil:
    # Text to the type of what it is compared with. False: it is not such a value.
    to.type = type
    if type == TYPE_BOOLEAN:
        to.whole = _is_true_text(text)
        return True
    if type == TYPE_INTEGER:
        return java_whole(text.text, text.size, INT32_MAX, &to.whole)
    if type == TYPE_LONG:
        return java_whole(text.text, text.size, INT64_MAX, &to.whole)
    return java_double(text.text, text.size, &to.real)


cdef inline double _real(const FilterValue *v) noexcept nogil:
    return v.real if v.type == TYPE_DOUBLE else <double> v.whole


cdef bint _compare(const FilterValue *left, const FilterValue *right, bint for_order, int *order) noexcept nogil:
    # ComparisonExpression.__compare of two values that are not null. False: they cannot be compared. for_order: two texts are
    # compared as doubles; else they are equal or not.
    cdef FilterValue l, r
    if left.type == TYPE_TEXT and right.type == TYPE_TEXT:
        if not for_order:
            order[0] = 0 if _same_text(left, right) else -1
            return True
        if not _convert(left, TYPE_DOUBLE, &l) or not _convert(right, TYPE_DOUBLE, &r):
            return False
        order[0] = java_order(l.real, r.real)
        return True
    if left.type == TYPE_TEXT:
        if not _convert(left, right.type, &l):
            return False
        left = &l
    elif right.type == TYPE_TEXT:
        if left.type == TYPE_BOOLEAN or not _convert(right, left.type, &r):
            return False            # RocketMQ compares a Boolean on the left with the text itself, which Java refuses
        right = &r
    if left.type == TYPE_BOOLEAN or right.type == TYPE_BOOLEAN:
        order[0] = _order_whole(left.whole, right.whole) if left.type == right.type else -1
    elif left.type == TYPE_DOUBLE or right.type == TYPE_DOUBLE:
        order[0] = java_order(_real(left), _real(right))
    else:
        order[0] = _order_whole(left.whole, right.whole)
    return True


cdef int _equal(const FilterValue *left, const FilterValue *right) noexcept nogil:
    cdef int order = 0
    if left.type == TYPE_NULL or right.type == TYPE_NULL:
        return FILTER_TRUE if left.type == right.type else FILTER_NULL if left.type == TYPE_NULL else FILTER_FALSE
    if not _compare(left, right, False, &order):
        return FILTER_FAILED
    return order == 0


cdef int _ordered(int32_t operation, const FilterValue *left, const FilterValue *right) noexcept nogil:
    cdef int order = 0
    if left.type == TYPE_NULL or right.type == TYPE_NULL:
        return FILTER_NULL
    if not _compare(left, right, True, &order):
        return FILTER_FAILED
    if operation == DO_GREATER:
        return order > 0
    if operation == DO_GREATER_EQUAL:
        return order >= 0
    return order < 0 if operation == DO_LESS else order <= 0


# ---- the program

cdef inline const FilterValue *_value(const FilterOperand *o, const FilterProgram *p, const FilterValue *properties,
                                      const signed char *stack, int *top, FilterValue *room) noexcept nogil:
    if o.kind == KIND_PROPERTY:
        return &properties[o.index]
    if o.kind == KIND_LITERAL:
        return &p.literals[o.index]
    top[0] -= 1
    room.type = TYPE_NULL if stack[top[0]] == FILTER_NULL else TYPE_BOOLEAN
    room.whole = stack[top[0]]
    return room


cdef inline int _both(int left, int right, int decides) noexcept nogil:
    # AND and OR: what decides alone, else null if either is null.
    if left == decides or right == decides:
        return decides
    return FILTER_NULL if left == FILTER_NULL or right == FILTER_NULL else 1 - decides


cdef inline int _tested(const FilterStep *s, const FilterProgram *p, const FilterValue *left,
                        const FilterValue *right) noexcept nogil:
    # A step with operands: what it finds.
    if s.operation == DO_EQUAL:
        return _equal(left, right)
    if s.operation <= DO_LESS_EQUAL:
        return _ordered(s.operation, left, right)
    if s.operation == DO_IS_NULL:
        return left.type == TYPE_NULL
    if s.operation == DO_CAST:
        return FILTER_NULL if left.type == TYPE_NULL else FILTER_FALSE
    if s.operation == DO_IN:
        if left.type == TYPE_NULL:
            return FILTER_NULL
        return _is_in(left, &p.literals[s.right.index], s.skip) != s.negated
    if s.operation == DO_PUSH:
        return FILTER_NULL if left.type == TYPE_NULL else <int> left.whole
    if left.type != TYPE_TEXT:          # of what is no text both the plain and the negated form are false
        return FILTER_FALSE
    return _searched(s.operation, left, right) != s.negated


cdef inline void _look_up(const FilterProgram *p, const char *properties, int32_t size, FilterValue *found) noexcept nogil:
    # The values of the properties that the program names; the last of a name wins, as in Java's map.
    cdef const char *end = properties + size
    cdef Property have
    cdef int32_t i
    for i in range(p.name_count):
        found[i].type = TYPE_NULL
    while property_next(&properties, end, &have):
        for i in range(p.name_count):
            if p.names[i].size == have.name_size and memcmp(p.names[i].text, have.name, have.name_size) == 0:
                found[i].type = TYPE_TEXT
                found[i].text = have.value
                found[i].size = have.value_size
                break


cdef int filter_evaluate(const FilterProgram *p, const char *properties, int32_t size) noexcept nogil:
    cdef FilterValue[FILTER_NAMES_MAX] found
    cdef signed char[FILTER_STACK_MAX] stack
    cdef FilterValue left_room, right_room
    cdef const FilterValue *left
    cdef const FilterValue *right
    cdef const FilterStep *s
    cdef int top = 0, truth
    cdef int32_t at = 0
    _look_up(p, properties, size, found)
    while at < p.step_count:
        s = &p.steps[at]
        at += 1
        if s.operation == DO_AND or s.operation == DO_OR:
            top -= 1
            stack[top - 1] = <signed char> _both(stack[top - 1], stack[top], s.operation == DO_OR)
        elif s.operation == DO_NOT:
            if stack[top - 1] != FILTER_NULL:
                stack[top - 1] = 1 - stack[top - 1]
        elif s.operation == DO_SKIP_FALSE or s.operation == DO_SKIP_TRUE:
            if stack[top - 1] == (s.operation == DO_SKIP_TRUE):
                at = s.skip
        elif s.operation == DO_FORGET:
            stack[top - 1] = FILTER_NULL
        elif s.operation == DO_SKIP_NULL:
            if _value(&s.left, p, found, stack, &top, &left_room).type == TYPE_NULL:
                stack[top] = FILTER_NULL
                top += 1
                at = s.skip
        else:
            right = _value(&s.right, p, found, stack, &top, &right_room) if s.right.kind != KIND_NONE else NULL
            left = _value(&s.left, p, found, stack, &top, &left_room)
            truth = _tested(s, p, left, right)
            if truth == FILTER_FAILED:
                return FILTER_FAILED
            stack[top] = <signed char> truth
            top += 1
    return stack[0]


cdef object _given(object properties):
    """The properties of a Message, which has others than the attributes of the same names; else what is given."""
    if isinstance(properties, (bytes, Mapping)):
        return properties
    found = getattr(properties, "properties", None)
    if not isinstance(found, Mapping):
        raise errors.illegal("properties", properties, "give a Message, a mapping of str to str, or the bytes of a record's "
                             "properties")
    return found


cdef str _compared(const FilterProgram *p, bytes data):
    # The properties that an expression names, as a message has them: for an error.
    cdef int32_t i
    known, found = decode_properties(data), []
    for i in range(p.name_count):
        name = p.names[i].text[:p.names[i].size].decode()
        if name in known:
            found.append(f"{name}={known[name][:60]!r}")
    return " or ".join(found) or "a property"


@cython.final
cdef class SqlFilter:
    """A SQL92 filter: an expression over the properties of a message, in RocketMQ's grammar, such as
    "price BETWEEN 3 AND 5 AND region IN ('eu', 'us')". Reads take it as `sql`, in place of its text.

    Thread-safety: any number of threads. Raises FilterIllegal. RocketMQ: SqlFilter, SelectorParser.
    """

    def __cinit__(self, sql):
        if not isinstance(sql, str):
            raise errors.illegal("sql", sql, "give the text of a SQL92 expression, or None for all messages")
        # Here, as the parser takes a tenth of a second to load.
        from rmq_store.filter.compiler import tables

        self.sql = str.__str__(sql)         # of a subclass, too, the text alone
        self._load(tables(self.sql))

    cdef int _load(self, object made) except -1:
        cdef list texts = [name.encode() for name in made.names]
        cdef list literals = made.literals
        cdef int32_t steps = <int32_t> len(made.steps), names = <int32_t> len(texts), count = <int32_t> len(literals)
        cdef FilterStep *step
        cdef FilterValue *value
        cdef char *text
        if made.stack > FILTER_STACK_MAX or names > FILTER_NAMES_MAX:
            raise AssertionError("the compiler's limits are greater than the program's")
        texts += [literal.value.encode() if literal.kind == "text" else b"" for literal in literals]
        self.memory = calloc(1, steps * sizeof(FilterStep) + (names + count) * sizeof(FilterValue) + sum(map(len, texts)) + 1)
        if self.memory == NULL:
            raise MemoryError("filter")
        value = <FilterValue *> self.memory
        step = <FilterStep *> (value + names + count)
        text = <char *> (step + steps)
        self.program.names, self.program.name_count = value, names
        self.program.literals = value + names
        self.program.steps, self.program.step_count = step, steps
        for piece in texts:
            memcpy(text, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
            value.text, value.size, value.type = text, <int32_t> PyBytes_GET_SIZE(piece), TYPE_TEXT
            text += PyBytes_GET_SIZE(piece)
            value += 1
        value -= count
        for literal in literals:
            value.type = _TYPES[literal.kind]
            if value.type == TYPE_DOUBLE:
                value.real = literal.value
            elif value.type == TYPE_TEXT:
                value.whole = "\ufffd" in literal.value
            elif value.type != TYPE_NULL:
                value.whole = literal.value
            value += 1
        for one in made.steps:
            step.operation, step.negated, step.skip = _OPERATIONS[one.operation], one.negated, one.skip
            step.left.kind, step.left.index = _KINDS[one.left.kind], one.left.place
            step.right.kind, step.right.index = _KINDS[one.right.kind], one.right.place
            if step.operation == DO_IN:         # its first literal speaks for all
                (<FilterValue *> &self.program.literals[step.right.index]).whole = any(
                    "\ufffd" in literal.value for literal in literals[one.right.place:one.right.place + one.skip])
                step.right.kind = KIND_LITERAL
            step += 1
        return 0

    def __dealloc__(self):
        free(self.memory)

    def evaluate(self, properties):
        """What the expression says of these properties: True, False, or None for unknown (SQL's null).

        properties: a Message, a mapping of str to str, or the bytes of a record's properties. Raises ArgumentIllegal;
        FilterFailed where a property cannot be compared, such as text where a number is compared; PropertiesSizeExceeded;
        MessageIllegal.
        """
        cdef bytes data = properties_bytes(_given(properties), True)
        cdef int truth = filter_evaluate(&self.program, PyBytes_AS_STRING(data), <int32_t> PyBytes_GET_SIZE(data))
        if truth == FILTER_FAILED:
            raise errors.FilterFailed(f"sql {self.sql[:200]!r}: {_compared(&self.program, data)} is not of the type that it is "
                                      "compared with: put it as a number, or compare it with a text in single quotes")
        return None if truth == FILTER_NULL else truth == FILTER_TRUE

    def matches(self, properties):
        """Whether a read with this filter returns a message with these properties: bool. properties: as `evaluate`. What
        `evaluate` raises FilterFailed for, or says None of, does not match."""
        cdef bytes data = properties_bytes(_given(properties), True)
        return filter_evaluate(&self.program, PyBytes_AS_STRING(data), <int32_t> PyBytes_GET_SIZE(data)) == FILTER_TRUE

    def __reduce__(self):
        return SqlFilter, (self.sql,)

    def __eq__(self, other):
        return isinstance(other, SqlFilter) and self.sql == (<SqlFilter> other).sql

    def __hash__(self):
        return hash(self.sql)

    def __repr__(self):
        return f"SqlFilter({self.sql!r})"


_known = lru_cache(maxsize=100)(SqlFilter)       # as many as RocketMQ keeps


cpdef SqlFilter filter_of(object sql):
    if sql is None or type(sql) is SqlFilter:
        return <SqlFilter> sql
    if not isinstance(sql, str):
        raise errors.illegal("sql", sql, "give the text of a SQL92 expression, a SqlFilter, or None for all messages")
    return _known(str.__str__(sql))


cpdef SqlFilter chosen_filter(object sql, object tags):
    """The filter of a read: SqlFilter, or None for all messages. Raises ArgumentIllegal, also for tags, and FilterIllegal."""
    if tags is not None and not isinstance(tags, str):
        raise errors.illegal("tags", tags, "give one str, 'a || b' for several, or None for all")
    if sql is None:
        return None
    if tags is not None and tags != "*" and tags != "":
        raise errors.illegal("sql", sql.sql if isinstance(sql, SqlFilter) else sql,
                             f"a read takes either tags or sql, and tags is {tags!r}: write the tag into the expression, as "
                             "in TAGS = 'a' AND price > 5")
    return filter_of(sql)
