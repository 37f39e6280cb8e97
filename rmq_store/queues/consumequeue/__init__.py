"""ROOM 4. Where the messages of each queue are."""
