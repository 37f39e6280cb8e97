"""Whole stores on the move: copies of messages into other stores, JSON lines out and in, backups."""
