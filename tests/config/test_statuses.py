"""Statuses: each says what happened and what to do; the committed page is the table; the table is true about who returns it."""
import ast
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rmq_store
from rmq_store.status import NEVER_HERE, GetStatus, PutStatus

ROOT = Path(__file__).parents[2]
PACKAGE = Path(rmq_store.__file__).parent
ALL = [*PutStatus, *GetStatus]
# What the store's code returns or raises: members of PutStatus by their names, numbers of a get by the enum of its kernel.
PUTS = re.compile(r"\bPutStatus\.([A-Z_]+)")
GETS = re.compile(r"\b(?:status|code) = ([A-Z_]{5,})")


@pytest.mark.parametrize("status", ALL, ids=lambda s: f"{type(s).__name__}.{s}")
def test_each_has_its_line(status):
    for text in (status.happened, status.to_do):
        assert text.endswith(".") and text[0].isupper() and "|" not in text and "\n" not in text
    assert f"| {status:d} | `{status}` | {status.happened} | {status.to_do} |" in (ROOT / "docs" / "statuses.md").read_text()


def test_the_page_is_current():
    command = [sys.executable, "-W", "error", "-m", "rmq_store.config.document", "statuses"]
    page = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert (ROOT / "docs" / "statuses.md").read_text() == page, "run python -m rmq_store.config.document statuses > the page"


def test_what_the_code_returns_is_told_as_returned_and_nothing_else():
    sources = {p: p.read_text() for kind in ("*.py", "*.pyx") for p in PACKAGE.rglob(kind)
               if p.name != "status.py" and p.parent != PACKAGE / "broker"}        # a broker makes answer codes of them
    puts = {name for text in sources.values() for name in PUTS.findall(text)}
    gets = set(GETS.findall(sources[PACKAGE / "access" / "reader" / "_get.pyx"]))
    assert {s.name for s in PutStatus if s.to_do != NEVER_HERE} == puts
    assert {s.name for s in GetStatus if s.to_do != NEVER_HERE} == gets
    assert not any(re.search(r"raise (errors\.)?PutError\(", text) for text in sources.values())


@pytest.mark.parametrize("status", ALL, ids=lambda s: f"{type(s).__name__}.{s}")
def test_it_stays_a_number_with_a_name(status):
    assert str(status) == f"{status}" == status.name and json.dumps(status) == f"{status:d}" == str(int(status))
    assert type(status)(int(status)) is status and pickle.loads(pickle.dumps(status)) is status


# The test that shows the store returning it. What is not here, only a broker or a replica returns.
# A PutStatus and a GetStatus of one number are equal, and would be one key.
SHOWN_OF = {PutStatus: {
    PutStatus.PUT_OK: "tests/store/test_statuses_returned.py::test_put_ok",
    PutStatus.FLUSH_DISK_TIMEOUT: "tests/fault/test_fence.py::test_a_late_sync_is_a_status_and_the_next_one_covers_it",
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "tests/replication/test_in_sync.py::test_too_few_in_sync_store_nothing",
    PutStatus.FLUSH_SLAVE_TIMEOUT: "tests/replication/test_sync_master.py::test_a_slave_that_acknowledges_nothing",
    PutStatus.SLAVE_NOT_AVAILABLE: "tests/replication/test_sync_master.py::test_no_slave",
    PutStatus.SERVICE_NOT_AVAILABLE: "tests/hooks/test_running_flags.py::refused",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "tests/store/test_statuses_returned.py::test_create_mapped_file_failed",
    PutStatus.MESSAGE_ILLEGAL: "tests/store/test_statuses_returned.py::test_message_illegal",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "tests/store/test_statuses_returned.py::test_properties_size_exceeded",
    PutStatus.OS_PAGE_CACHE_BUSY: "tests/hooks/test_running_flags.py::test_page_cache_busy",
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: "tests/light/test_light_put.py::test_the_number_of_light_queues_is_bounded",
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: "tests/timer/test_timer.py::test_a_full_slot_refuses",
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: "tests/timer/test_timer.py::test_past_times_and_wrong_ones",
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "tests/timer/test_timer.py::test_past_times_and_wrong_ones",
    PutStatus.UNKNOWN_ERROR: "tests/hooks/test_put_hooks.py::test_a_hook_that_fails_refuses_with_unknown_error",
}, GetStatus: {
    GetStatus.FOUND: "tests/store/test_put_get.py::test_fields_come_back",
    GetStatus.NO_MATCHED_MESSAGE: "tests/filter/test_reads.py::test_next_offset_moves_past_what_does_not_match",
    GetStatus.MESSAGE_WAS_REMOVING: "tests/reader/test_odd_statuses.py::test_message_was_removing_where_no_record_can_be_read",
    GetStatus.OFFSET_FOUND_NULL:
        "tests/reader/test_odd_statuses.py::test_offset_found_null_where_the_queue_goes_while_one_looks",
    GetStatus.OFFSET_OVERFLOW_BADLY: "tests/waiting/test_get_wait.py::test_what_is_there_is_returned_at_once",
    GetStatus.OFFSET_OVERFLOW_ONE: "tests/waiting/test_get_wait.py::test_the_time_ends_it",
    GetStatus.OFFSET_TOO_SMALL: "tests/store/test_put_get.py::test_statuses_and_corrections",
    GetStatus.NO_MESSAGE_IN_QUEUE: "tests/waiting/test_get_wait.py::test_the_time_ends_it",
}}


@pytest.mark.parametrize("status", ALL, ids=lambda s: f"{type(s).__name__}.{s}")
def test_each_is_shown_by_a_test_or_told_to_be_a_broker_s(status):
    assert (status in SHOWN_OF[type(status)]) == (status.to_do != NEVER_HERE)
    if status.to_do != NEVER_HERE:
        path, name = SHOWN_OF[type(status)][status].split("::")
        (found,) = (node for node in ast.walk(ast.parse((ROOT / path).read_text()))
                    if isinstance(node, ast.FunctionDef) and node.name == name)
        assert status.name in ast.dump(found), "the test does not name it"
