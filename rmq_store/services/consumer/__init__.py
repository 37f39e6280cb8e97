"""ROOM 12. Who has consumed how far: offsets of groups, upstream's config files, and a small consumer on top of get."""
