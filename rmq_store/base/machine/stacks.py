"""All threads of this process as text: what each one is doing, or waiting for, now (RocketMQ: UtilAll.jstack).

Native threads from /proc: name, state, and the kernel function they sleep in (`0` while they run, or where the kernel does not
tell). Python threads also with their frames. A picture of one moment per thread, not of one moment for all. Any thread.
"""
import os
import sys
import threading
import traceback

__all__ = ["dump_threads"]

_TASKS = "/proc/self/task"


def dump_threads() -> str:
    """One line a thread, `id name state waits-for`, in the order of their ids; below it the frames of a Python thread."""
    known = {thread.native_id: thread for thread in threading.enumerate()}
    frames = sys._current_frames()
    lines = []
    for number in sorted(map(int, os.listdir(_TASKS))):
        try:
            lines.append(_native(number))
        except (FileNotFoundError, ProcessLookupError):
            continue            # it has ended meanwhile
        thread = known.get(number)
        frame = frames.get(thread.ident) if thread is not None and thread.ident is not None else None
        if thread is not None and frame is not None:
            lines.append(f"  Python thread {thread.name}")
            lines += [f"    {line}" for part in traceback.format_stack(frame) for line in part.rstrip().splitlines()]
    return "\n".join(lines)


def _native(number: int) -> str:
    name, stat, waits = (_read(number, part) for part in ("comm", "stat", "wchan"))
    return f"{number} {name} {stat.rpartition(')')[2].split()[0]} {waits}"


def _read(number: int, part: str) -> str:
    with open(f"{_TASKS}/{number}/{part}", encoding="utf-8", errors="replace") as file:
        return file.read().strip()
