"""ROOM 14. What a store has done and how long it took: typed statistics, upstream's runtime info, measured puts."""
