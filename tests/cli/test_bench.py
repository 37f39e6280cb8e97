"""`rmqstore bench`: every workload runs, its figures are there, and nothing stays on the disk."""
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from rmq_store.bench.case import WORKLOADS
from rmq_store.bench.disks import DISKS
from rmq_store.bench.peers import PEERS
from rmq_store.cli import bench, main

SMALL = ["--seconds", "0.02", "--mib", "4", "--segment-mib", "16", "-o", "index_slots=1000", "-o", "index_entries_max=50000"]
ROOT = Path(__file__).parents[2]


def test_list_names_everything(json_lines):
    code, lines = json_lines("bench", "list")
    assert code == 0 and {line["name"] for line in lines} == {*WORKLOADS, *PEERS, *DISKS}


def test_settings_are_crossed(json_lines, tmp_path):
    code, lines = json_lines("bench", "put_sync", "--dir", tmp_path / "a", tmp_path / "b", "--body", "100,3000",
                             *SMALL, "--write-path", "pool")
    assert code == 0
    assert {(r["dir"], r["case"]["body"]) for r in lines} == {(str(tmp_path / d), b) for d in "ab" for b in (100, 3000)}
    assert all(r["medians"]["msgs_per_s"] > 0 and r["case"]["write_path"] == "pool" for r in lines)
    assert all(r["medians"]["flushes"] == r["medians"]["msgs"] for r in lines)
    assert not [*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()]


@pytest.mark.parametrize("arguments", [["nothing"], ["put_sync", "--body", "x"], ["put_sync", "--file-state", "wet"],
                                       ["put_sync", "--peer", "nobody"], ["put_sync", "--seconds", "0"],
                                       ["put_sync", "--disk", "floppy"],
                                       ["put_sync", "--reps", "0"], ["put_sync", "--body", "-1"], ["put_sync", "-o", "x"]])
def test_what_makes_no_sense_is_refused(rmqstore, tmp_path, arguments):
    code, out, err = rmqstore("bench", *arguments, "--dir", tmp_path)
    assert code == 64 and "expected" in err and not out


def test_options_go_to_whom_they_name():
    args = main.build_parser("bench").parse_args(["bench", "put_sync", "--peer", "fio,append", "-o", "fio.direct=1", "-o",
                                                  "put_lock=spin", "--file-state", "sparse,prezeroed"])
    found = [(c.subject, c.file_state, c.options) for c in bench._cases(args)]
    assert found == [(subject, state, options) for subject, options in (
        ("rmq_store", {"put_lock": "spin"}), ("fio", {"direct": "1"}), ("append", {})) for state in ("sparse", "prezeroed")]


def test_too_little_room_is_said_before(rmqstore, tmp_path):
    code, out, _ = rmqstore("bench", "put_sync", "--dir", tmp_path, "--mib", str(1 << 40))
    assert code == 3 and "MiB free" in out and "give less --mib" in out
    assert not list(tmp_path.iterdir())


def test_an_option_that_cannot_be_is_a_failure_with_its_reason(rmqstore, tmp_path):
    code, out, _ = rmqstore("bench", "put_sync", "--dir", tmp_path, *SMALL, "-o", "flush_deadline_ms=soon")
    assert code == 1 and "FAILED" in out and "flush_deadline_ms" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(tmp_path, number):
    """Stopped while the run is under way: 130, no process, no data."""
    command = [sys.executable, "-m", "rmq_store", "bench", "put_async", "--dir", str(tmp_path), "--seconds", "600", "--mib",
               "64", "--segment-mib", "16", "--rate", "10"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as running:
        while not list(tmp_path.glob("rmqbench.*/data/due/commitlog/0*")):
            assert running.poll() is None
        (run,) = (p for p in Path("/proc").iterdir() if p.name.isdigit() and _parent(p) == running.pid)
        running.send_signal(number)
        assert running.wait() == 130
        assert not run.exists()
    assert not list(tmp_path.iterdir())


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def test_results_and_histograms_are_written(rmqstore, tmp_path):
    code, out, _ = rmqstore("bench", "put_async", "--rate", "2000", "--dir", tmp_path / "d", *SMALL, "--out", tmp_path / "out")
    assert code == 0 and "put_async mmap auto 1024 B 2000/s" in out
    (result,) = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    (run,) = result["runs"]
    assert 1 <= run["msgs"] <= 41        # fewer where the machine is busy and the first put is late
    assert run["service_max_us"] <= run["max_us"]
    texts = [p.read_text() for p in (tmp_path / "out").glob("*.hgrm")]
    assert len(texts) == 2 and all(f"Total count    = {run['msgs']:12d}" in t for t in texts)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") >= 1 and "put_async mmap auto 1024 B 2000/s" in page
    assert not re.search(r"""(?:src|href)=|url\(|@import|<script""", page), "the report would load something"
    xml.etree.ElementTree.fromstring(re.search("<svg.*?</svg>", page, re.DOTALL)[0])
    assert os.listdir(tmp_path / "d") == []
