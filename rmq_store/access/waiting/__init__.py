"""Waiting for messages: readers that hold, listeners, and the hub that feeds event loops."""
