"""Schedules, not luck: every scenario under chosen orders of its I/O calls, then under orders by chance, each trace judged by
the checker, and the states that power cuts leave at every step of each: what one run has in common with another is judged once.

RMQ_SEED chooses other chances. A finding tells its schedule; RMQ_SCHEDULE="roll/pool-async-io_uring/1,0,2" plays it again.
`make test-schedules` takes RMQ_SCHEDULES (60) runs of each scenario on each configuration.
"""
import itertools
import os

import pytest

from tests.crash import scenario as stores
from tests.crash.disk import Disk
from tests.crash.states import Scratch, explore
from tests.trace.explorer import Order, chances, orders, play
from tests.trace.scenarios import SCENARIOS, judge_image, told

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("RMQ_SEED", "1"))
RUNS = int(os.environ.get("RMQ_SCHEDULES", "60"))
DEPTH = 8
CONFIGS = [*stores.CONFIGS, *([("pool", "async", "io_uring-buffered"), ("pool", "sync", "io_uring-buffered"),
                               ("pool", "async", "io_uring-dsync")] if stores.RING_HERE else [])]
# In the short form each scenario runs where most threads meet.
MOST = ("pool", "async", "io_uring") if stores.RING_HERE else ("pool", "async", "fdatasync")
by_name = {"-".join(config): config for config in CONFIGS}


def explored(tmp_path, scenario, config, runs, some):
    """Plays `runs` schedules, most of them in order, the last third by chance. Of each step of each run the two extremes are
    judged, of every seventh run `some` states. Returns how many there were, equal ones counted once."""
    options = stores.config_options(config)
    in_order = itertools.islice(orders(DEPTH), runs - runs // 3)
    schedules = itertools.chain(in_order, itertools.islice(chances(SEED), runs // 3))
    states, seen = 0, set()
    with Scratch(tmp_path) as scratch:
        for number, choose in enumerate(schedules):
            root = str(tmp_path / f"{number}")
            played = play(root, scenario, options, choose)
            where = f"{scenario.name} on {'-'.join(config)}, seed {SEED}, {played.schedule}"
            assert not played.findings, f"{where}:\n  " + "\n  ".join(played.findings)
            report = explore(Disk(root), played.trace, judge_image(scratch, played.options), seed=SEED + number,
                             per_cut=some if number % 7 == 0 else 2, stop_after=3, seen=seen, told=told)
            states += report.states
            assert not report.violations, f"{where}: {report}"
    return states


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_schedules(tmp_path, scenario):
    assert explored(tmp_path, scenario, MOST, 9, 3) > 30


@pytest.mark.parametrize("name", ["roll", "checkpoint", "close"])
def test_schedules_on_the_plainest_back_end(tmp_path, name):
    scenario = next(s for s in SCENARIOS if s.name == name)
    assert explored(tmp_path, scenario, ("mmap", "sync", "fdatasync"), 9, 3) > 30


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids="-".join)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_many_schedules(tmp_path, scenario, config):
    assert explored(tmp_path, scenario, config, RUNS, 6) > 30


@pytest.mark.skipif("RMQ_SCHEDULE" not in os.environ, reason="plays the schedule that RMQ_SCHEDULE names")
def test_one_schedule(tmp_path):
    name, config, decisions = os.environ["RMQ_SCHEDULE"].split("/")
    scenario = next(s for s in SCENARIOS if s.name == name)
    played = play(str(tmp_path / "s"), scenario, stores.config_options(by_name[config]),
                  Order([int(n) for n in decisions.split(",")]))
    assert not played.findings, f"{played.schedule}:\n  " + "\n  ".join(played.findings)


def test_the_same_decisions_are_the_same_schedule(tmp_path):
    """As far as the machine keeps up: the actors' own steps come in the order that was decided."""
    scenario = next(s for s in SCENARIOS if s.name == "flush-put")
    config = stores.config_options(("mmap", "async", "fdatasync"))
    first, again = (play(str(tmp_path / f"{n}"), scenario, config, Order([1, 0, 0, 0])) for n in range(2))
    assert first.steps[0] == again.steps[0] == "put begins" and first.decisions[0] == again.decisions[0]
    assert len({c.kind for c in first.trace}) > 10
