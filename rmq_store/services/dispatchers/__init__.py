"""Dispatchers of programs and of other packages: consumers of dispatched records, off the hot path."""
