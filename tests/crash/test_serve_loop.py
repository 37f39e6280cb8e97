"""kill -9 and SIGTERM of `rmqstore serve` amid sends (serve_loop.py): a short loop here, long ones with `make test-crash`."""
import os

import pytest

from tests.crash import kill_loop, serve_loop

pytestmark = pytest.mark.crash
SEED = int(os.environ.get("RMQ_SEED", "1"))
SYNC = [config for config in kill_loop.CONFIGS if "-sync-" in config]


def check(config, rounds, tmp_path):
    seen = serve_loop.run(config, rounds, SEED, str(tmp_path))
    assert seen["wrong"] == [] and seen["acknowledged"] > 0


def test_nothing_answered_is_missing(tmp_path):
    check("mmap-sync-msync", 3, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("config", [*SYNC, "mmap-async-msync", "pool-async-fdatasync"])
def test_nothing_answered_is_missing_many_times(tmp_path, config):
    check(config, int(os.environ.get("RMQ_CRASH_KILLS", "30")), tmp_path)


def test_the_judge_hears_of_a_message_that_was_answered_and_is_not_there(tmp_path):
    directory = kill_loop.Directory(str(tmp_path / "s"), "mmap-sync-msync", [serve_loop.WINDOW] * serve_loop.PRODUCERS)
    with kill_loop.MessageStore.open(directory.root, **kill_loop.options_of(directory.root, directory.config)) as store:
        store.put(kill_loop.TOPIC, kill_loop.body_of(0, 0), queue_id=0, keys="0-0")
    assert directory.look([(0, 0, 0)], readonly=True) == []
    assert "acknowledged at" in directory.look([(0, 1, 4096)], readonly=True)[0]
