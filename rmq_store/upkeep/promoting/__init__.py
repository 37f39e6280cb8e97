"""A slave that becomes a master."""
