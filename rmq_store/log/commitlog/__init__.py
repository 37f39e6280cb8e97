"""ROOM 6. The only writer: the append path under the put lock."""
