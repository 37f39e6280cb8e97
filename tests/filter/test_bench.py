"""bench/load/filter.py runs, counts right, and says why RocketMQ's evaluator is missing where it is."""
import json

from bench.load import filter as driver


def test_runs_without_java(tmp_path, capsys, monkeypatch):
    nothing = tmp_path / "no-java.sh"
    nothing.write_text("#!/bin/sh\necho 'SKIP: java is not installed' >&2\nexit 77\n")
    nothing.chmod(0o755)
    monkeypatch.setattr(driver, "JAVA", nothing)
    driver.main(["--dir", str(tmp_path / "here"), "--quick", "--out", str(tmp_path / "out.json")])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["case"]: row["matched"] for row in rows} == {
        "none": 0, "one_in_1000": rows[1]["matched"], "half": 10_000, "text": rows[3]["matched"]}
    assert 0 < rows[1]["matched"] < 20
    found = json.loads((tmp_path / "out.json").read_text())
    assert {*found["runs"]} == {*driver.CASES}
    assert all(run["entries_per_s"] > 0 and run["cpu_ns_per_entry"] > 0 for runs in found["runs"].values()
               for run in runs["rmq_store"])
    assert found["missing"] == {f"{case}/rocketmq": "SKIP: java is not installed" for case in driver.CASES}
    assert found["failed"] == {}
