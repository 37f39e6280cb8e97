"""Golden stores unpacked once, and the command line called in this process."""
import contextlib
import io
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
def rmqstore():
    """rmqstore("dump", path) -> (exit code, standard output, standard error)."""
    from rmq_store.cli.main import main

    def call(*argv):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main([str(a) for a in argv])
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), err.getvalue()

    return call


@pytest.fixture
def json_lines(rmqstore):
    """Like rmqstore with --json: (exit code, the lines as dicts)."""
    def call(*argv):
        code, out, err = rmqstore(*argv, "--json")
        assert err == ""
        return code, [json.loads(line) for line in out.splitlines()]

    return call
