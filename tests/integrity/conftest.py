"""The command line called in this process."""
import contextlib
import io

import pytest


@pytest.fixture
def rmqstore():
    """rmqstore("verify", path) -> (exit code, standard output, standard error)."""
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
