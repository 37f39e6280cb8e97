"""Queues and index made anew by Spark jobs: the real RocketMQ reads such a store as it read it before, and as we do."""
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import spark_session
from tests.golden_store import GoldenCase
from tests.interop import content, jvm, ours
from tests.interop.test_java_reads_ours import compare

pytestmark = pytest.mark.spark
SIZES = {"mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000, "maxHashSlotNum": 5_000_000,
         "maxIndexNum": 20_000_000}
SPLIT = 100_000     # bytes: even small logs are rebuilt by several tasks


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with spark_session.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def readings(java: list[jvm.JavaStore], path: Path, case: content.Case) -> dict[str, list[str]]:
    """What each version of the real store reads from a copy, line by line."""
    readers = [j for j in java if j.version not in case.not_read_by]
    for j in readers:
        j.send("verify", path, path.with_name(f"{j.version}.jsonl"), path.parent,
               *jvm.settings(ours.java_settings(case, j.version)))
    assert [j.answer()["rc"] for j in readers] == [0] * len(readers)
    return {j.version: path.with_name(f"{j.version}.jsonl").read_text().splitlines() for j in readers}


def check_same(before: dict[str, list[str]], after: dict[str, list[str]]) -> None:
    """All lines are equal, but for times searched by 4.9.8: it chooses a queue's file by when files were modified, which is
    when they were flushed last. Rebuilt files have the time of their newest message: what is found is as near, or nearer."""
    for version, lines in before.items():
        pairs = list(zip(lines, after[version], strict=True))
        stored = {(m["topic"], m["queueId"], m["cqOffset"]): m["storeTs"] for m in map(json.loads, lines) if m["t"] == "msg"}
        for one, two in pairs:
            if one != two and version == "4.9.8" and '"t":"time"' in one:
                was, now = json.loads(one), json.loads(two)
                assert (was["topic"], was["queueId"], was["ts"]) == (now["topic"], now["queueId"], now["ts"])
                away = [abs(stored[x["topic"], x["queueId"], x["offset"]] - x["ts"]) for x in (now, was)]
                assert away[0] <= away[1], (was, now)
            else:
                assert one == two, version


def rebuild(spark: Any, path: Path, sizes: dict[str, int]) -> tuple[int, int]:
    """Throws queues and index away and has Spark make them: how many entries of each."""
    from rmq_store.spark import jobs

    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name, ignore_errors=True)
    queues = jobs.rebuild_queues(spark, str(path), install=True, split_size=SPLIT,
                                 file_size=sizes["mappedFileSizeConsumeQueue"])
    index = jobs.rebuild_index(spark, str(path), install=True, split_size=SPLIT, slots=sizes["maxHashSlotNum"],
                               entries=sizes["maxIndexNum"])
    return queues.entries, index.keys


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_our_stores_are_read_as_before(spark: Any, compat: str, java: list[jvm.JavaStore], tmp_path: Path) -> None:
    path, case = tmp_path / "store", content.CASES["everything"]
    acknowledged = ours.write(path, "everything", compat=compat)
    before = readings(java, path, case)
    entries, keys = rebuild(spark, path, {**SIZES, **case.files})
    assert 0 < entries <= len(acknowledged) and keys > 100
    check_same(before, readings(java, path, case))
    for found in compare(java, path, case).values():
        assert sorted(found) == acknowledged


@pytest.mark.parametrize("name", ["v4-roll", "v4-delaytx", "v5-longtopic"])
def test_its_own_stores_are_read_as_before(spark: Any, name: str, java: list[jvm.JavaStore], golden: Any) -> None:
    one: GoldenCase = golden(name)
    config = {key: int(value) if value.isdigit() else value for key, value in one.config.items()}
    case = content.Case((), config, not_read_by=("4.9.8",) if name == "v5-longtopic" else ())
    before = readings(java, one.store, case)
    entries, keys = rebuild(spark, one.store, {**SIZES, **config})
    assert entries > 50 and keys > 0
    check_same(before, readings(java, one.store, case))
