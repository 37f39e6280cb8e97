"""ROOM 2. Memory taken once, at open."""
