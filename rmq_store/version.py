"""The version: the only place. pyproject.toml reads it from here."""
VERSION = "0.1.0"
