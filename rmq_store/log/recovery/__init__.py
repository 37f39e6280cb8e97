"""ROOM 9. After the night: who has the store, where the log ends, the checkpoint."""
