# Put hooks, as the put path asks them.
from cpython.object cimport PyObject

# Asks the hooks, (name, hook) each, about the arguments of a put; then whether a message of a topic in `keyed` has a key.
# `changed` gets the arguments as the hooks want them; it points into what is returned, and into `v`. Raises what refuses the
# message.
cdef object hooks_run(tuple hooks, object keyed, PyObject **v, PyObject **changed, bint compat5)
