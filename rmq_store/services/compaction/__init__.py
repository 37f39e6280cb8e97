"""Compaction topics: the newest message of each key. See table.py for how they are read."""
