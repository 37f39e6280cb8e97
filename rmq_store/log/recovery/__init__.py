"""Opening after a crash: who has the store, where the log ends, the checkpoint."""
