"""The one append, under the put lock, and the positions of the log."""
