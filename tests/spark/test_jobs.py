"""Jobs on stores of the real RocketMQ and on damaged ones."""
import pytest

from rmq_store.spark import jobs
from tests import golden_store

pytestmark = pytest.mark.spark
GOOD = [c for c in golden_store.cases() if "crash" not in c]


def test_audit_finds_nothing_in_good_stores_and_the_damage_in_others(spark, stores):
    paths = {name: str(stores(name).store) for name in GOOD}
    report = jobs.audit(spark, paths, split_size=40_000)
    lines = [x for name in GOOD for x in stores(name).expected() if x["t"] == "log" and x["kind"] != "blank"]
    assert report.findings == []
    assert report.records == len(lines)
    torn = jobs.audit(spark, stores("v4-crash-torncrc").store)
    assert [what.split(",")[0] for *_, what in torn.findings] == ["wrong checksum"]
