"""Fixtures of the index tests; everything lies under tmp_path."""
import pytest

from rmq_store.queues.index.loader import load_index
from tests.index.index_data import IndexedCase


@pytest.fixture
def indexed(golden):
    """indexed("v4-plain") is that case, its records decoded."""
    return lambda name: IndexedCase(golden(name))


@pytest.fixture
def make(tmp_path):
    """make(slots, entries) is a fresh, empty index; make(..., dir=path) loads that directory."""
    made = []

    def make(slots, entries, *, dir=None, readonly=False, io=None):
        tmp = tmp_path / ".alloc"
        tmp.mkdir(exist_ok=True)
        made.append(dir)
        path = dir or tmp_path / f"index{len(made)}"
        return load_index(io, str(path), str(tmp), slots, entries, readonly)
    return make
