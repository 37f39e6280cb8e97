"""ROOM 3. Commit-log files: one, a row of them, and the next one made ahead."""
