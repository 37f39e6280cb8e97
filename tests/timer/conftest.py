"""Stores of these tests lie in memory: their threads sync all the time, and nothing here is about a device."""
import pytest


@pytest.fixture
def tmp_path(memory_disk):
    return memory_disk
