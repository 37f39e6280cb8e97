"""The process of one run: `python -m rmq_store.bench.worker JOB` runs the case of a job file and writes its figures.

JOB is a JSON file with "case", "base" (a directory of the run's own) and "result" (the file to write). The result holds the
figures, or "skipped" with the reason, or "error" with its text. Dies with the process that started it.
"""
import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from rmq_store.bench.case import OURS, WORKLOADS, Case, Skip
from rmq_store.bench.ours import Figures, memory_before
from rmq_store.errors import BackendUnavailable

PR_SET_PDEATHSIG = 1


def run(case: Case, base: Path) -> Figures:
    """The figures of a case. Raises Skip where it cannot run here."""
    if case.subject == OURS:
        module = f"rmq_store.bench.{WORKLOADS[case.workload].room}"
    else:
        from rmq_store.bench import peers
        module = peers.module_of(case.subject)
    try:
        figures: Figures = importlib.import_module(module).run(case, base)
    except (BackendUnavailable, ImportError) as error:
        raise Skip(str(error)) from error
    return {**figures, "memory_before": memory_before[0]} if memory_before else figures


def main(argv: list[str]) -> int:
    """The job in the file argv[1]."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    job = json.loads(Path(argv[1]).read_text())
    if job.get("cgroup"):
        (Path(job["cgroup"]) / "cgroup.procs").write_text(str(os.getpid()))
    try:
        result = run(Case.from_dict(job["case"]), Path(job["base"]))
    except Exception as error:
        skipped = isinstance(error, Skip) or type(error).__name__ == "Skip"     # -m loads this module under two names
        result = {"skipped": str(error)} if skipped else {"error": f"{type(error).__name__}: {error}",
                                                          "traceback": traceback.format_exc()}
    partial = job["result"] + ".partial"
    Path(partial).write_text(json.dumps(result))
    os.rename(partial, job["result"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
