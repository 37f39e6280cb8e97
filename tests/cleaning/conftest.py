"""Stores with files of chosen age."""
import pytest

from tests.cleaning.aged import Aged


@pytest.fixture
def aged(tmp_path):
    made = []

    def make(**options):
        made.append(Aged(tmp_path / f"s{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        one.store.close()
