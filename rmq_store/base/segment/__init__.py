"""Commit-log files: one, a row of them, and the next one, which is made ahead."""
