"""The sink against a model of rows (sink_model.py): random sequences of writes, batches, kills and failures at any step, new
and old checkpoints, moves, cleanings, puts of others, bulk loads, relative paths. A finding names its seed and what was
done."""
import pytest

from tests.spark.sink_model import Worker, World, Wrong
from tests.spark.sink_plants import PLANTS

pytestmark = [pytest.mark.crash, pytest.mark.untraced(reason="the store is written by processes that are killed")]


@pytest.fixture(scope="module")
def worker():
    process = Worker()
    yield process
    process.close()


def run(place, seed, steps, worker, plant=None):
    """Raises Wrong with what was done."""
    place.mkdir()
    world = World(place, seed, worker, plant)
    try:
        for _ in range(steps):
            world.step()
    except Wrong as wrong:
        done = "\n  ".join(world.said)
        raise Wrong(f"seed {seed}, step {len(world.said)}: {wrong}\n  {done}") from None


@pytest.mark.parametrize("seed", [0, 1])
def test_what_was_written_is_there_once(tmp_path, worker, seed):
    run(tmp_path / "w", seed, 25, worker)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 42))
def test_what_was_written_is_there_once_in_many_sequences(tmp_path, worker, seed):
    run(tmp_path / "w", seed, 50, worker)


def found_at(tmp_path, worker, plant, seeds, steps):
    for seed in seeds:
        try:
            run(tmp_path / f"{plant}{seed}", seed, steps, worker, plant)
        except Wrong as wrong:
            return str(wrong)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_each_planted_fault_is_found(tmp_path, worker, plant):
    assert found_at(tmp_path, worker, plant, range(30), 50)


def test_a_planted_fault_is_found(tmp_path, worker):
    assert "seed 0, step " in found_at(tmp_path, worker, "paths_as_they_were_called", [0], 25)
