"""Which flush back end a store gets in one directory: asked for and impossible is an error with its cure, `auto` is the best
that works, with one log line that says why.

Control plane, the opening thread. Everything is found out by doing it (_uring.uring_probe), nothing by version.
"""
import errno
import os
import resource
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.machine import device
from rmq_store.config.load import Options
from rmq_store.errors import BackendUnavailable
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.log.flush._uring import setup_flag_names, uring_probe

__all__ = ["BLOCK", "UringChoice", "check_backend", "choose_backend", "choose_uring"]

GROUP = "rmq_store.flush_backends"     # of entry points
BLOCK = 4096            # of direct writes
WRITE_MIN, WRITE_MAX = 256 << 10, 1 << 20
_OTHERS = "use flush_backend='auto' or 'fdatasync'"
_REFUSED = {
    errno.EPERM: ("io_uring is forbidden here (a container's seccomp profile, or kernel.io_uring_disabled)",
                  f"allow io_uring_setup, io_uring_enter and io_uring_register, or {_OTHERS}"),
    errno.ENOSYS: ("the kernel, or a container's seccomp profile, has no io_uring", _OTHERS),
    errno.ENOMEM: ("the ring does not fit into the memlock limit", f"raise it (ulimit -l, LimitMEMLOCK=), or {_OTHERS}"),
    errno.EMFILE: ("no descriptor is left for the ring", "raise the limit of open files (ulimit -n)"),
}


class UringChoice(NamedTuple):
    """How the ring writes. direct: O_DIRECT. durable: small durable steps are one RWF_DSYNC write, not write and fdatasync.
    request_bytes: what the device takes as one request: writes are so many, or a multiple."""

    direct: bool
    durable: bool
    request_bytes: int


def check_backend(options: Options) -> None:
    """flush_backend as this write path can have it; before anything is made. Raises BackendUnavailable."""
    if options.flush_backend == "io_uring" and options.write_path != "pool" and not options.readonly:
        raise BackendUnavailable("io_uring", f"it writes from the pool, and write_path is {options.write_path!r}",
                                 "use write_path='pool'")


# What `auto` found out, once a process for each device and set of options that matter: a probe costs two syncs.
_tried: dict[tuple[object, ...], tuple[UringChoice | None, str]] = {}


def foreign_backend(name: str) -> Any:
    """The PyCapsule of a back end that another package offers: entry point `name` of the group rmq_store.flush_backends, an
    object or a function that makes it. Raises BackendUnavailable."""
    import importlib.metadata  # a store with a back end of this library does not pay for it

    found = importlib.metadata.entry_points(group=GROUP, name=name)
    if not found:
        raise BackendUnavailable(name, "no installed package offers it",
                                 f"install one with this entry point in the group {GROUP}, or {_OTHERS}")
    try:
        offered = next(iter(found)).load()
        return offered() if callable(offered) else offered
    except Exception as error:      # of whatever kind: it is another package's code
        raise BackendUnavailable(name, f"its package raised {type(error).__name__}: {error}", "ask its makers") from error


def choose_backend(options: Options, directory: str, io: IoTable) -> tuple[Options, Any]:
    """The options with the back end that holds; and how the ring writes (UringChoice) where it is io_uring, the capsule where
    it is another package's.

    Where a back end is named nothing is tried but io_uring itself; nor is anything on the mmap write path. Raises
    BackendUnavailable where what was named cannot be.
    """
    if options.readonly or options.flush_backend in ("msync", "fdatasync"):
        return options, None
    if options.flush_backend == "io_uring":
        return options, choose_uring(options, directory, io)
    if options.flush_backend != "auto":
        return options, foreign_backend(options.flush_backend)
    choice: UringChoice | None = None
    reason = f"write_path {options.write_path} leaves the writing to the page cache"
    if options.write_path == "pool" and options.role == "sync_master" and options.flush_mode == "async":
        reason = "puts wait until they are committed and replicated, and a page cache takes them sooner than a device"
    elif options.write_path == "pool":
        key = (os.stat(directory).st_dev, options.flush_mode, options.segment_size_bytes % BLOCK == 0,
               *(options[n] for n in options if n.startswith("uring_")))
        cached = type(io) is IoTable        # what a test makes of the calls holds for that table alone
        choice, reason = _tried[key] if cached and key in _tried else _try_uring(options, directory, io)
        if cached:
            _tried[key] = choice, reason
    backend = "fdatasync" if choice is None else "io_uring"
    emit(Event.BACKEND_CHOSEN, backend=backend, reason=reason)
    return options.inferred({"flush_backend": backend}, "auto"), choice


def _try_uring(options: Options, directory: str, io: IoTable) -> tuple[UringChoice | None, str]:
    """How the ring would write, or None; and why. Without direct I/O it has nothing over pwrite and fdatasync."""
    if options.uring_direct == "off":
        return None, "uring_direct is off, and without direct I/O io_uring gains nothing"
    try:
        choice = choose_uring(options, directory, io)
    except BackendUnavailable as error:
        return None, error.reason
    except OSError as error:
        return None, f"trying io_uring failed ({error.strerror})"
    if not choice.direct:
        return None, "there is no direct I/O here, and without it io_uring gains nothing"
    return choice, "io_uring and direct I/O work here"


def choose_uring(options: Options, directory: str, io: IoTable) -> UringChoice:
    """Tries io_uring in `directory`, where the commit log's files are made. Raises BackendUnavailable."""
    found = uring_probe(directory, io, sqpoll=options.uring_sqpoll, iopoll=options.uring_iopoll)
    setup = _number(found["setup"])
    if setup:
        _refuse_ring(setup, options)
    if found["file"]:
        code = _number(found["file"])
        raise OSError(code, os.strerror(code), directory)
    for step in ("write", "sync"):
        if found[step]:
            raise BackendUnavailable("io_uring", f"a {step} by io_uring failed: {os.strerror(_number(found[step]))}", _OTHERS)
    reason = _no_direct(found, options)
    direct = options.uring_direct != "off" and not reason
    if reason and (options.uring_direct == "on" or options.uring_iopoll):
        name = "uring_direct='on'" if options.uring_direct == "on" else "uring_iopoll=True"
        raise BackendUnavailable("io_uring", f"{name} needs direct I/O, and {reason}", "leave it out, or move the store")
    if reason and options.uring_direct == "auto":
        emit(Event.DIRECT_REFUSED, path=directory, reason=reason)
    durable = options.uring_durability == "dsync" or (
        options.uring_durability == "auto" and direct and options.flush_mode == "sync" and found["direct_durable"] == 0)
    longest = (device.request_max(directory) or WRITE_MAX) // BLOCK * BLOCK
    return UringChoice(direct, durable, max(WRITE_MIN, min(longest, WRITE_MAX)))


def say_ready(choice: UringChoice, depth: int, flags: int, pool_size: int, refused: int) -> None:
    """What the ring is like; and a warning where the kernel did not take the pool's memory as registered buffers (an errno)."""
    if refused:
        emit(Event.BUFFERS_REFUSED, size=pool_size, errno=refused, limit=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
    emit(Event.RING_READY, depth=depth, how="direct" if choice.direct else "through the page cache",
         durability="RWF_DSYNC" if choice.durable else "fdatasync", flags=" ".join(setup_flag_names(flags)))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _refuse_ring(code: int, options: Options) -> None:
    wished = [n for n in ("uring_sqpoll", "uring_iopoll") if options[n]]
    if code == errno.EINVAL and wished:
        raise BackendUnavailable("io_uring", f"the kernel refuses a ring with {' and '.join(wished)}", "leave it out")
    reason, cure = _REFUSED.get(code, (f"the kernel refuses a ring: {os.strerror(code)}", _OTHERS))
    raise BackendUnavailable("io_uring", reason, cure)


def _no_direct(found: dict[str, int | tuple[str, ...] | None], options: Options) -> str:
    """Why direct I/O cannot be, or an empty text."""
    if options.segment_size_bytes % BLOCK:
        return f"segment_size_bytes {options.segment_size_bytes} is not a multiple of {BLOCK}"
    if found["direct"]:
        return f"this file system has no direct I/O ({os.strerror(_number(found['direct']))})"
    if _number(found["align"]) > BLOCK:
        return f"direct I/O needs an alignment of {found['align']} here, more than {BLOCK}"
    for step in ("direct_write", "direct_sync"):
        if found[step]:
            return f"{step.replace('_', ' ')} failed ({os.strerror(_number(found[step]))})"
    return ""
