"""ROOM 8. Following the log into queues and index."""
