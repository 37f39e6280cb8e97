"""The shared object in which all extension modules are, and how one of them is made. rmq_store/modules.py imports them."""
from cpython.object cimport PyObject

cdef extern from *:
    """
    typedef struct rmq_module {
        const char *name;
        PyObject *(*init)(void);
    } rmq_module;
    #include "rmq_modules.h"
    """
    ctypedef struct rmq_module:
        const char *name                # NULL: behind the last one
        PyObject *(*init)() except NULL
    const rmq_module *rmq_modules       # setup.py makes the table

cdef extern from "Python.h":
    ctypedef struct PyModuleDef
    object PyModule_FromDefAndSpec(PyModuleDef *definition, object spec)
    PyModuleDef *PyModule_GetDef(object module) except NULL
    int PyModule_ExecDef(object module, PyModuleDef *definition) except -1


cdef dict _rows():
    cdef int n = 0
    found = {}
    while rmq_modules[n].name != NULL:
        found[rmq_modules[n].name.decode()] = n
        n += 1
    return found


cdef dict _at = _rows()
NAMES = frozenset(_at)


def create(spec):
    """The module of a spec, not yet executed, as importlib.machinery.ExtensionFileLoader makes it of a file. Raises KeyError
    for a name that is not in NAMES."""
    cdef int n = _at[spec.name]
    return PyModule_FromDefAndSpec(<PyModuleDef *> rmq_modules[n].init(), spec)


def execute(module):
    """Runs a module that `create` made."""
    PyModule_ExecDef(module, PyModule_GetDef(module))
