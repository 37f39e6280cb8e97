"""Put hooks: the arguments of a put, shown to them; and hooks that are C functions. Contracts in _hooks.pxd, rmq_put_hook.h.

The thread that puts, with the GIL, and only where a hook was added. RocketMQ: PutMessageHook.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy, memset

from rmq_store.access.writer._arguments cimport (ARGUMENTS, BODY, BORN_HOST, BORN_TIMESTAMP, DELAY, DELAY_LEVEL, DELIVER_AT,
                                                 FLAG, KEYS, PREPARED_TRANSACTION_OFFSET, PROPERTIES, QUEUE_ID,
                                                 RECONSUME_TIMES, SYS_FLAG, TAGS, TOPIC, joined_keys)
from rmq_store.codec._layout cimport PROPERTIES_SIZE_MAX

from rmq_store import errors
from rmq_store.access.writer.hooks import PutMessage, ask
from rmq_store.access.writer.keyed import need_key
from rmq_store.status import PutStatus

cdef extern from "rmq_put_hook.h" nogil:
    enum: RMQ_PUT_HOOK_VERSION
    enum: RMQ_PUT_HOOK_REASON_MAX
    const char *RMQ_PUT_HOOK_CAPSULE
    ctypedef struct rmq_put_message:
        const char *topic
        const unsigned char *body
        const char *properties
        int64_t body_size
        int32_t topic_size, properties_size, queue_id, flag, sys_flag, batch
        const char *changed
        int32_t changed_size
        char *reason
    ctypedef struct rmq_put_hook:
        uint32_t version
        void *state
        int (*before_put)(void *state, rmq_put_message *message) noexcept

cdef tuple _STATUS = tuple(PutStatus)


cdef object hooks_run(tuple hooks, object keyed, PyObject **v, PyObject **changed, bint compat5):
    cdef object keys = <object> v[KEYS]
    cdef object kept = None
    memcpy(changed, v, ARGUMENTS * sizeof(PyObject *))
    if keys is not None and type(keys) is not str:
        keys = joined_keys(keys)        # an iterator gives its keys once
        changed[KEYS] = <PyObject *> keys
    if hooks:
        message = PutMessage("5.x" if compat5 else "4.9", topic=<object> v[TOPIC], body=<object> v[BODY],
                             queue_id=<object> v[QUEUE_ID], tags=<object> v[TAGS], keys=keys, properties=<object> v[PROPERTIES],
                             delay_level=<object> v[DELAY_LEVEL], deliver_at=<object> v[DELIVER_AT], delay=<object> v[DELAY],
                             flag=<object> v[FLAG], sys_flag=<object> v[SYS_FLAG],
                             born_timestamp=<object> v[BORN_TIMESTAMP], born_host=<object> v[BORN_HOST],
                             reconsume_times=<object> v[RECONSUME_TIMES],
                             prepared_transaction_offset=<object> v[PREPARED_TRANSACTION_OFFSET])
        ask(hooks, message)
        if message.changed:
            kept = message.encoded()
            changed[PROPERTIES] = <PyObject *> kept
            changed[TAGS] = changed[KEYS] = <PyObject *> None
            changed[DELAY_LEVEL] = changed[DELIVER_AT] = changed[DELAY] = <PyObject *> None
    if keyed is not None:
        need_key(keyed, <object> v[TOPIC], <object> changed[KEYS], <object> changed[PROPERTIES])
    return keys, kept


cdef class _CapsuleHook:
    """A hook that is a C function."""

    cdef object capsule             # keeps what `hook` points to
    cdef const rmq_put_hook *hook

    def __call__(self, message):
        cdef rmq_put_message m
        cdef bytes topic = message.topic.encode("utf-8", "surrogatepass"), body = bytes(memoryview(message.body))
        cdef bytes properties = message.encoded()
        cdef int rc
        memset(&m, 0, sizeof(m))
        m.topic, m.topic_size = PyBytes_AS_STRING(topic), <int32_t> PyBytes_GET_SIZE(topic)
        m.body, m.body_size = <const unsigned char *> PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)
        m.properties, m.properties_size = PyBytes_AS_STRING(properties), <int32_t> PyBytes_GET_SIZE(properties)
        m.queue_id, m.flag, m.sys_flag, m.batch = message.queue_id, message.flag, message.sys_flag, message.batch
        rc = self.hook.before_put(self.hook.state, &m)
        if rc != 0:
            if rc < 0 or rc >= len(_STATUS):
                raise ValueError(f"it returned {rc}, which is not the number of a PutStatus")
            m.reason[RMQ_PUT_HOOK_REASON_MAX - 1] = 0
            return _STATUS[rc], (<bytes> m.reason).decode("utf-8", "replace")
        if m.changed != NULL:
            if m.changed_size < 0 or m.changed_size > PROPERTIES_SIZE_MAX:
                raise ValueError(errors.exceeds("the size of its properties", f"{m.changed_size} bytes", PROPERTIES_SIZE_MAX,
                                                "the hook has to store less"))
            message.replace(m.changed[:m.changed_size])
        return _STATUS[0]


def hook_of_capsule(capsule):
    """A callable over the rmq_put_hook of a PyCapsule. Raises ArgumentIllegal."""
    cdef _CapsuleHook made
    cdef const rmq_put_hook *hook
    if not PyCapsule_IsValid(capsule, RMQ_PUT_HOOK_CAPSULE):
        raise errors.illegal("hook", capsule, "give a function of a PutMessage, or a PyCapsule named "
                             f"{RMQ_PUT_HOOK_CAPSULE.decode()} (rmq_put_hook.h)")
    hook = <const rmq_put_hook *> PyCapsule_GetPointer(capsule, RMQ_PUT_HOOK_CAPSULE)
    if hook.version != RMQ_PUT_HOOK_VERSION or hook.before_put == NULL:
        raise errors.illegal("hook", capsule, f"it is of version {hook.version} of rmq_put_hook.h, and this is "
                             f"{RMQ_PUT_HOOK_VERSION}, or it lacks before_put: install a release of it for this rmq_store")
    made = _CapsuleHook.__new__(_CapsuleHook)
    made.capsule, made.hook = capsule, hook
    return made
