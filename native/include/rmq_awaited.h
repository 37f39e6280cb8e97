/* What compiled awaitables have: `await` gets their outcome as a value, where __next__ must raise StopIteration with it, which
 * costs a third of a microsecond. Cython has the slot for its generators only. */
#ifndef RMQ_AWAITED_H
#define RMQ_AWAITED_H
#include <Python.h>

static PyAsyncMethods rmq_async;

static void rmq_send_by(PyTypeObject *type, int (*send)(PyObject *, PyObject *, PyObject **)) {
    if (type->tp_as_async != NULL) rmq_async = *type->tp_as_async;
    rmq_async.am_send = (sendfunc) send;
    type->tp_as_async = &rmq_async;
    PyType_Modified(type);
}
#endif
