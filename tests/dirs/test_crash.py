"""Kills and power cuts of a store over two directories: nothing acknowledged is lost, and no open takes what a crash leaves for
a disk that is gone."""
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.crash import scenario
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore
from tests.crash.test_kill_points import work

pytestmark = pytest.mark.crash
CONFIGS = [("mmap", "async", "msync"), ("pool", "sync", "fdatasync")]
configs = pytest.mark.parametrize("config", CONFIGS, ids="-".join)
SEED = int(os.environ.get("RMQ_SEED", "1"))
ROOT = Path(__file__).parents[2]


def several(root: object) -> dict[str, Any]:
    return {"commitlog_path": f"{root}/log1,{root}/log2"}


def rolls(run: scenario.Run) -> None:
    """Through five files, which lie by turns in both directories, and a clean close between two of them."""
    for _ in range(5):
        run.put(6000)
        run.put(6000)
    run.again(**several(run.root))
    run.put(6000)
    run.put(6000)
    run.flush()
    run.close()


@configs
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_kill_at_every_change(memory_disk: Path, config: tuple[str, str, str], step: int) -> None:
    n, looked = step, 0
    while True:
        root = memory_disk / f"s{n}"
        root.mkdir()
        probe = ProbeIo()
        probe.freeze("mutate", n)
        try:
            run = scenario.Run(str(root), probe, *config, **several(root))
            try:
                work(run)
                run.put(7000)
                run.put(7000)
            finally:
                run.store.close()
        except (RmqStoreError, OSError):
            pass            # after the freeze new files are not where the store looks for them
        if not probe.frozen:
            break
        notes = [call.note for call in probe.trace() if not call.ignored and call.kind == "mark"]
        notes.append(("durable", sum(note[0] == "place" for note in notes)))
        wrong = scenario.judge(str(root), notes, {**scenario.SMALL, **several(root)}, go_on=True)
        assert wrong is None, f"killed at change {n}: {wrong}"
        looked += 1
        n += step
    assert looked > 8


@configs
@pytest.mark.parametrize("per_cut", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_power_cut(tmp_path: Path, memory_disk: Path, config: tuple[str, str, str], per_cut: int) -> None:
    root = memory_disk / "s"
    root.mkdir()
    probe = ProbeIo()
    run = scenario.Run(str(root), probe, *config, **several(root))
    rolls(run)
    trace, disk = probe.trace(), Disk(root)
    for call in trace:
        disk.feed(call)
    assert disk.current() == read_directory(root)
    assert len(os.listdir(root / "log1")) >= 2 <= len(os.listdir(root / "log2"))
    with Scratch(memory_disk) as scratch:
        def judge(image: Any, notes: list[Any]) -> str | None:
            place = scratch.write(image)
            return scenario.judge(place, notes, {**scenario.SMALL, **several(place)})

        report = explore(Disk(root), trace, judge, per_cut=per_cut, seed=SEED)
    assert report.states >= 30 and not report.violations, report


@pytest.mark.parametrize(("config", "cycles"), [
    ("mmap-async-msync-several", 5), ("pool-sync-fdatasync-several", 5),
    pytest.param("mmap-sync-fdatasync-several", 100, marks=pytest.mark.slow),
    pytest.param("pool-async-fdatasync-several", 100, marks=pytest.mark.slow)])
def test_kill_real_processes(tmp_path: Path, config: str, cycles: int) -> None:
    command = [sys.executable, "-m", "tests.crash.kill_loop", "--cycles", str(cycles), "--seed", str(SEED), "--config", config,
               "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
