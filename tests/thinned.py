"""What CI leaves out: of tests with many cases, which cost minutes of CPU together, it runs some cases of each function.

All of them run where CI is not set: `tools/test`. Which ones CI runs depends on the function's name alone, so every worker, and
every run, chooses the same."""
import zlib
from collections import defaultdict

import pytest

# File -> one case of so many is run; a function with fewer cases keeps one.
ONE_OF = {
    "cli/test_reading_writes_nothing.py": 4,
    "consumequeue/test_many_queues.py": 3,
    "crash/test_kill_loop.py": 3,
    "crash/test_kill_points.py": 4,
    "crash/test_recovery_faults.py": 2,
    "crash/test_states_store.py": 4,
    "elsewhere/test_follow.py": 2,
    "fault/test_allocations.py": 2,
    "fault/test_every_call.py": 6,
    "fault/test_file_kinds.py": 3,
    "figures/test_run.py": 2,
    "first_hour/test_places.py": 4,
    "flush/test_bad_days.py": 2,
    "flush/test_contract.py": 4,
    "golden_readback/test_readback.py": 2,
    "integrity/test_no_hang.py": 4,
    "integrity/test_repair.py": 2,
    "interop/test_filters.py": 3,
    "interop/test_java_reads_ours.py": 3,
    "moving/test_backup.py": 3,
    "moving/test_copy.py": 2,
    "recovery/test_interrupted.py": 4,
    "recovery/test_odd_files.py": 3,
    "recovery/test_queue_ends.py": 3,
    "recovery/test_rotten_headers.py": 3,
    "recovery/test_rotten_newest.py": 4,
    "recovery/test_torn_records.py": 3,
    "regress/test_closed_within.py": 6,
    "threads/test_producers.py": 2,
    "trace/test_schedules.py": 3,
    "waiting/test_many_tasks.py": 2,
}


def _name(item: pytest.Item) -> str:
    return "/".join(item.path.parts[-2:])


def thin(items: list[pytest.Item]) -> list[pytest.Item]:
    """Takes cases out of `items`, in place; returns them."""
    cases = defaultdict(list)
    for item in items:
        if _name(item) in ONE_OF:
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out = set()
    for function, of_it in cases.items():
        share = min(ONE_OF[_name(of_it[0])], len(of_it))
        first = zlib.crc32(function.rpartition("::")[2].encode()) % share
        left_out |= set(of_it) - set(of_it[first::share])
    gone = [item for item in items if item in left_out]
    items[:] = [item for item in items if item not in left_out]
    return gone
