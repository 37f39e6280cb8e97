"""ROOM 5. Where the messages of each key are."""
