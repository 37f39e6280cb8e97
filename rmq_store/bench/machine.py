"""What a figure was measured on, and who else was working meanwhile. Written into every result.

`describe()` is for the head of a result file; `Watch` surrounds one measured run.
"""
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import psutil

from rmq_store.base.machine import device
from rmq_store.version import VERSION


def _first_line(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0] if text and done.returncode == 0 else None


def _field(path: str, name: str) -> str | None:
    try:
        found = re.search(rf"^{name}\s*:\s*(.*)$", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1) if found else None


def _file_system(path: Path) -> dict[str, str]:
    """The mount `path` lies on."""
    _, kind, _, options = device.mount_of(path)
    return {"type": kind, "options": options}


def _git() -> dict[str, object] | None:
    """The commit of a checkout; None for an installed package."""
    root = str(Path(__file__).parents[2])
    if not os.path.exists(os.path.join(root, ".git")):
        return None
    return {"commit": _first_line("git", "-C", root, "rev-parse", "HEAD"),
            "dirty": bool(_first_line("git", "-C", root, "status", "--porcelain", "--untracked-files=no"))}


def describe(path: Path) -> dict[str, object]:
    """Machine, kernel, file system of `path`, versions, commit."""
    memory = _field("/proc/meminfo", "MemTotal")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "virtual_machine": "hypervisor" in (_field("/proc/cpuinfo", "flags") or ""),
        "memory_mib": int(memory.split()[0]) // 1024 if memory else None,
        "file_system": _file_system(path),
        "device": device.describe(path),
        "python": sys.version.split()[0],
        "rmq_store": VERSION,
        "java": _first_line("java", "-version"),
        "git": _git(),
    }


def _busy_seconds() -> float:
    """CPU time used by everybody since boot, interrupts and the host's share included, idle and iowait not."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def _thread_seconds() -> dict[str, float]:
    """CPU time of each live thread of this process so far, by name; several of one name together."""
    found: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            found[name] = found.get(name, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError):       # ended meanwhile, or a kernel without schedstat
            continue
    return found


def anonymous_memory(pid: int | None = None) -> int:
    """Anonymous memory of a process, of this one by default, in bytes: what it would not have without its own doing. The pool
    is not in it. Raises psutil.Error for a process that has ended."""
    memory = psutil.Process(pid).memory_info()
    return int(memory.rss - memory.shared)


class Watch:
    """`with Watch() as w:` then `w.figures()`: wall time, own CPU time, page faults, and how busy others were.

    `foreign` is the share of all CPUs that did not work for this process (kernel write-back included): above about 0.15 a
    run is disturbed. `threads`: CPU seconds of the store's threads that lived from begin to end.
    """

    def __enter__(self) -> Self:
        self._threads = _thread_seconds()
        self._busy, self._own = _busy_seconds(), time.process_time()
        self._faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        self.began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.began
        self.own = time.process_time() - self._own
        self.faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - self._faults
        self.foreign = max(0.0, _busy_seconds() - self._busy - self.own) / (self.seconds * len(os.sched_getaffinity(0)))
        self.threads = {k: v - self._threads[k] for k, v in _thread_seconds().items()
                        if k.startswith("rmq-") and k in self._threads}

    def figures(self) -> dict[str, float]:
        return {"secs": round(self.seconds, 4), "cpu_secs": round(self.own, 4), "minor_faults": self.faults,
                "foreign": round(self.foreign, 3), **{f"cpu_{k[4:]}_secs": round(v, 4) for k, v in self.threads.items()}}


if __name__ == "__main__":
    print(json.dumps(describe(Path.cwd()), indent=1))
