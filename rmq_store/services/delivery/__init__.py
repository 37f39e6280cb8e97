"""Copies of messages that are due: what delay levels and timer messages share."""
