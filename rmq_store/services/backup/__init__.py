"""Backups: a store read as files, an image of it, directories of backups."""
