"""fio as the limit: the same writes and syncs on a file in the same state, without a store around them.

put_sync and put_many (flush mode sync): write + fdatasync of a body, or of a whole batch, one behind the other; with the option
direct=1 O_DIRECT | O_DSYNC instead. put_async: sequential writes of 1 MiB (option block=BYTES); with direct=1 O_DIRECT through
io_uring at the option depth=N with fixed buffers and registered files, else buffered with one fsync at the end.
"""
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rmq_store.bench.case import Case, Skip
from rmq_store.bench.ours import Figures
from rmq_store.bench.peers import make_file


def _job(case: Case, file: Path, size: int, block: int) -> list[str]:
    direct, depth = bool(int(case.options.get("direct", 0))), int(case.options.get("depth", 1))
    common = [f"--filename={file}", f"--size={size}", "--rw=write", f"--bs={block}", "--fallocate=none", "--name=job",
              "--output-format=json", "--percentile_list=50:99:99.9", "--thread"]
    if case.flush_mode == "sync":
        how = ["--direct=1", "--sync=dsync"] if direct else ["--fdatasync=1"]
        return [*common, *how, "--ioengine=psync", f"--runtime={max(1, round(case.seconds * 1000))}ms"]
    if direct:
        return [*common, "--direct=1", "--ioengine=io_uring", f"--iodepth={depth}", "--fixedbufs", "--registerfiles"]
    return [*common, "--ioengine=psync", "--end_fsync=1"]


def _quantiles(latency: dict[str, Any]) -> dict[str, float]:
    found = latency["percentile"]
    return {short: found[name] / 1e3 for short, name in (("p50_us", "50.000000"), ("p99_us", "99.000000"),
                                                                ("p999_us", "99.900000"))}


def run(case: Case, base: Path) -> Figures:
    """Skips where fio is not installed. Raises RuntimeError where it failed, or wrote nothing."""
    program = shutil.which("fio")
    if program is None:
        raise Skip("fio is not installed (package fio)")
    if case.workload not in (known := ("put_async", "put_sustained", "put_sync", "put_many")):
        raise Skip(f"fio has no workload {case.workload}: it knows {', '.join(known)}")
    size = case.cap_mib << 20
    sync = case.flush_mode == "sync"
    block = int(case.options.get("block", case.body * case.batch if sync else 1 << 20))
    file = base / "file"
    os.close(make_file(file, case.file_state, size))
    command = [program, *_job(case, file, size // block * block, block)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"fio ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return _figures(case, json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0], block,
                    " ".join(command[1:]).replace(str(base), "DIR"))


def _figures(case: Case, job: dict[str, Any], block: int, command: str) -> Figures:
    write, after = job["write"], job.get("sync", {})
    seconds, sync = write["runtime"] / 1e3, case.flush_mode == "sync"
    if job.get("error") or not write["total_ios"] or not seconds:
        raise RuntimeError(f"fio wrote {write['total_ios']} times in {seconds} s, error {job.get('error')}: {command}")
    # A stream is counted in bodies, as if each were a message.
    msgs = write["total_ios"] * case.batch if sync else write["io_bytes"] // max(case.body, 1)
    cpu_secs = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job.get("job_runtime", write["runtime"]) / 1e3
    figures: Figures = {"block": block, "iops": write["iops"], "secs": seconds, "msgs": msgs,
                        "mib_per_s": round(write["io_bytes"] / seconds / (1 << 20), 3), "command": command,
                        "cpu_ns_per_msg": round(cpu_secs * 1e9 / max(msgs, 1), 1)}
    figures["sustained_mib_per_s"] = figures["mib_per_s"]
    if sync:
        figures["msgs_per_s"] = figures["sustained_per_s"] = round(msgs / seconds)
    latency = _quantiles(write["clat_ns"])
    highest = write["clat_ns"]["max"] / 1e3
    if after.get("lat_ns", {}).get("N"):     # the write and its sync: of quantiles their sum is an estimate, fio tells no more
        waits = _quantiles(after["lat_ns"])
        latency = {k: v + waits[k] for k, v in latency.items()}
        highest += after["lat_ns"]["max"] / 1e3
    return {**figures, **{k: round(min(v, highest), 3) for k, v in latency.items()}, "max_us": highest,
            "mean_us": round(1e6 / write["iops"], 3)}
