"""The command line as the tests of tests/cli call it."""
from tests.cli.conftest import json_lines

__all__ = ["json_lines"]
