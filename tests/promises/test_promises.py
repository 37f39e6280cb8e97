"""One store, all of its features, and everything that can happen to it: world.py, steps.py, ledger.py. The seeds say which
sequences. `make test-promises` plays many."""
import logging
import re

import pytest

from tests.promises.plants import PLANTS
from tests.promises.run import fault, play, shortest, steps_of


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_was_promised_is_kept(tmp_path, seed):
    play(tmp_path / "w", steps_of(seed))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_the_same_at_length(tmp_path, block):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        play(tmp_path / "w", steps_of(seed))


def test_a_kill_while_the_store_settles_is_judged_by_what_the_next_process_finds(tmp_path):
    """The process that was killed may refuse what it waits for. Threads decide when the kill comes: not each run meets it."""
    for i in range(3):
        play(tmp_path / str(i), [("kill", 97072518), ("put", 187732508), ("kill", 856078692), ("settle", 293511615)])


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_found(monkeypatch, name):
    """A model that never failed proves nothing. Threads make a run unlike its repetition, so some seeds are tried."""
    planted, says, seeds = PLANTS[name]
    planted(monkeypatch.setattr)
    found = []
    for seed in (*seeds, *seeds):
        found.append(str(fault(steps_of(seed))))
        if re.search(says, found[-1]):
            return
    raise AssertionError(f"{name} shows as {found}")


@pytest.mark.slow
def test_a_sequence_is_made_shorter(monkeypatch):
    planted, says, seeds = PLANTS["a_retry_is_not_stored"]
    planted(monkeypatch.setattr)
    steps = shortest(steps_of(seeds[0]))
    assert len(steps) <= 5 and re.search(says, str(fault(steps)))
