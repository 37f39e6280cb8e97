"""The notes of a checker. Contract in _notes.pxd."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

KINDS = ("log_hole", "body_crc", "record_crc", "log_tail", "queue_missing", "queue_other", "queue_tags", "queue_wrong",
         "index_missing", "index_wrong", "index_chain", "index_slot", "index_header", "record_header")


@cython.final
cdef class Notes:
    """Notes since they were last taken; beyond NOTES_MAX the last one gives way."""

    def __cinit__(self):
        self.rows = <Note *> calloc(NOTES_MAX, sizeof(Note))
        if self.rows == NULL:
            raise MemoryError("notes of a checker")

    def __dealloc__(self):
        free(self.rows)

    cdef void add(self, int kind, int64_t offset, int64_t a, int64_t b, int64_t c) noexcept nogil:
        cdef Note *n = &self.rows[self.count if self.count < NOTES_MAX else NOTES_MAX - 1]
        n.kind = kind
        n.offset = offset
        n.a = a
        n.b = b
        n.c = c
        n.topic_size = -1
        self.count += 1

    cdef void add_queue(self, int kind, int64_t offset, int64_t a, int64_t b, int64_t c, const char *topic, int32_t topic_size,
                        int32_t queue_id) noexcept nogil:
        cdef Note *n
        cdef int32_t i
        self.add(kind, offset, a, b, c)
        n = &self.rows[self.count - 1 if self.count < NOTES_MAX else NOTES_MAX - 1]
        n.topic_size = topic_size if topic_size < 255 else 255
        for i in range(n.topic_size):
            n.topic[i] = topic[i]
        n.queue_id = queue_id

    cdef list taken(self):
        # (kind, offset, a, b, c, topic or None, queue id) of each.
        cdef int i
        cdef Note *n
        found = []
        for i in range(min(self.count, NOTES_MAX)):
            n = &self.rows[i]
            found.append((KINDS[n.kind], n.offset, n.a, n.b, n.c,
                          None if n.topic_size < 0 else n.topic[:n.topic_size].decode("utf-8", "replace"), n.queue_id))
        self.count = 0
        return found
