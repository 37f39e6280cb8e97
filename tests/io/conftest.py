"""Fixtures of the I/O room."""
import os

import pytest

from rmq_store.base.io._io import ProbeIo


@pytest.fixture
def probe():
    return ProbeIo()


@pytest.fixture
def open_file(tmp_path):
    """open_file(table, name) gives a descriptor of a new file; all are closed at the end."""
    made = []

    def open_one(table, name="f", flags=os.O_RDWR | os.O_CREAT):
        made.append((table, table.open(tmp_path / name, flags)))
        return made[-1][1]

    yield open_one
    for table, fd in made:
        try:
            table.close(fd)
        except OSError:
            pass        # the test closed it
