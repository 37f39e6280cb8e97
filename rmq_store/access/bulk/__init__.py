"""ROOM 13. A store as a mass of bytes: parts of the log into columns, checks, rebuilds, staged records."""
