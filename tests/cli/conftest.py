"""Golden stores unpacked once, and what the command line prints as JSON."""
import json

import pytest

from tests import golden_store


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """golden("v4-roll") -> path of that store, shared by all tests: read only."""
    done = {}

    def unpacked(case):
        if case not in done:
            done[case] = golden_store.unpack(case, tmp_path_factory.mktemp(case)).store
        return done[case]

    return unpacked


@pytest.fixture
def json_lines(rmqstore):
    """Like rmqstore with --json: (exit code, the lines as dicts)."""
    def call(*argv):
        code, out, err = rmqstore(*argv, "--json")
        assert err == ""
        return code, [json.loads(line) for line in out.splitlines()]

    return call
