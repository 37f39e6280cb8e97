"""ROOM 7. Making it true: pool to file, file to device."""
