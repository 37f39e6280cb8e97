"""Random sequences of everything that can happen to timers: tests/timer/model.py. The seeds say which."""
import base64
import logging

import pytest

from rmq_store import MessageStore
from rmq_store.services.timer import service
from tests.timer.model import Wrong, play


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(1, 13))
def test_each_once_and_never_what_was_taken_back(tmp_path, seed):
    play(tmp_path / "s", seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_the_same_at_length(tmp_path, block):
    messages = recalls = 0
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        more = play(tmp_path / "s", seed)
        messages, recalls = messages + more[0], recalls + more[1]
    assert messages > 500 and recalls > 100


def test_the_model_sees_copies_that_nobody_looks_for(tmp_path, monkeypatch):
    """The mistake is planted: an open does not read the log behind the mark."""
    monkeypatch.setattr(service, "load_mark", lambda root: (None, None))
    with pytest.raises(Wrong, match="times"):
        for seed in range(1, 60):
            play(tmp_path / "s", seed)


def test_the_model_sees_a_recall_that_has_no_effect(tmp_path, monkeypatch):
    """The mistake is planted: the recall is acknowledged, and names another key."""
    recall_handle = MessageStore.recall_handle

    def planted(store, offset, broker_name="DEFAULT_BROKER"):
        known = base64.urlsafe_b64decode(recall_handle(store, offset, broker_name)).decode()
        return base64.urlsafe_b64encode(f"{known[:-1]}x".encode()).decode()

    monkeypatch.setattr(MessageStore, "recall_handle", planted)
    with pytest.raises(Wrong, match="taken back"):
        for seed in range(1, 20):
            play(tmp_path / "s", seed)
