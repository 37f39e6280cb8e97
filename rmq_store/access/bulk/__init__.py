"""Many records at once, as bytes: parts of the log as columns, checks, rebuilds, staged records."""
