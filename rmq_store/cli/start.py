"""Where `rmqstore` and `python -m rmq_store` begin: the standard streams are put in order, and Ctrl-C ends the import quietly.

Imports nothing of the store before that, as such an import takes a tenth of a second. The main thread only.
"""
import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from rmq_store.cli.exits import INTERRUPTED


def main() -> int:
    """The command line of this process; its exit code."""
    streams()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:        # in a shell's background it is ignored, and stays so
        signal.signal(signal.SIGINT, _leave)        # nothing is open yet: there is nothing to close
    run = _loaded()
    try:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _loaded() -> Callable[[], int]:
    """The command line, and what the command of this process needs of the store. All of that stays, so that the collector of
    garbage, which would look through it ten times meanwhile, rests."""
    gc.disable()
    from rmq_store.cli.main import COMMANDS, load
    from rmq_store.cli.main import main as run
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:       # --help and --version do not wait for it
        import rmq_store.store  # noqa: F401
        load(sys.argv[1])
    gc.freeze()
    gc.enable()
    return run


def streams() -> None:
    """Each of the three is there: what is closed would else be the number of a file of the store, and what is printed would be
    written into that. Writing to one that was closed fails, as it must. What no encoding has is shown as an escape."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDONLY if fd == 1 else os.O_WRONLY), fd)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", closefd=False))       # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
