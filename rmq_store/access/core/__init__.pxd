# The native parts of an open store.
