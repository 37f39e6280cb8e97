"""A store that we cleaned: the real one opens it, reads the same as we do, and goes on in it.

Every queue keeps some of its messages: of one that lost all of them 4.9.8 goes on telling the old beginning, as its rules for
its own cleaning have it, and reads MESSAGE_WAS_REMOVING there (ConsumeQueue.correctMinOffset); 5.x and we call it empty.
"""
import os
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests.interop import content, jvm
from tests.interop.test_together import FILES, appended, check_all_there, same_reading

CASE = content.CASES["together"]


@pytest.mark.slow
def test_the_real_store_goes_on_in_a_cleaned_one(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    lows = {}
    for j in java:
        path = tmp_path / j.version
        with MessageStore.open(path, compat=j.compat, **CASE.files) as store:
            for i in range(300):
                store.put("Shared", bytes([i % 251]) * 900, queue_id=i % 4, keys=f"key-{i}", tags="A")
            store.flush()
            assert store.wait_dispatched(60)
            offsets = [o for kind, o, _, _ in store.log_records() if kind == "msg"]
            done = store.clean(0, files_max=2, pace_ms=0)
            assert done.log_files == 2 and done.min_log_offset == 2 * 65536
            lows[j.version] = done.min_log_offset
        kept = [o for o in offsets if o >= lows[j.version]]
        found = same_reading(j, path)
        assert sorted(found) == kept and len(kept) < len(offsets)
    for j in java:
        j.send("open", tmp_path / j.version, *FILES)
        j.send("append", tmp_path / j.version, tmp_path / f"{j.version}.puts", 60, 3)
        j.send("close", tmp_path / j.version)
    for j in java:
        assert j.answer()["load"]
        j.answer()
        j.answer()
        path = tmp_path / j.version
        with MessageStore.open(path, compat=j.compat, **CASE.files) as store:
            assert store.min_log_offset == lows[j.version]
            check_all_there(store, appended(tmp_path / f"{j.version}.puts"))
            assert store.clean(0, files_max=1, pace_ms=0).log_files == 1
        assert sorted(os.listdir(path / "commitlog"))[0] > f"{lows[j.version]:020d}"
        same_reading(j, path)
