"""Commit and flush: from the pool to the file, from the file to the device."""
