# The properties string of a record, between Python and its bytes: name 0x01 value 0x02 name 0x01 value ...
# Needs the GIL; borrowed pointers live as long as the Python object they came from.

# Checks one piece of text that becomes part of a properties string (a name, a value, TAGS, KEYS) and lends its UTF-8 bytes.
# `what`, and `name` where there is one, say in the error what it is. Raises MessageIllegal: not a str, empty, a separator
# inside, a lone surrogate.
cdef const char *property_text(object text, str what, object name, Py_ssize_t *size) except NULL
# Whatever a caller may give as properties -> their bytes: None and an empty mapping -> b"", bytes-like -> as given, a mapping
# -> encoded in its order (trailing: 5.x ends with 0x02). Raises MessageIllegal, PropertiesSizeExceeded.
cdef bytes properties_bytes(object properties, bint trailing)
# The tolerant parser of RocketMQ (string2messageProperties); never raises for what the bytes say.
cdef dict properties_dict(const char *text, Py_ssize_t size)
# UTF-8 as Java decodes it: what is malformed becomes U+FFFD.
cdef str java_text(const char *text, Py_ssize_t size)
