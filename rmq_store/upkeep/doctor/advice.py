"""advise: measures a directory's device with every back end and proposes a profile, explained by the numbers.

Every contender is the store itself, in a scratch directory, so what is measured is what is used: synchronous puts one by one
and with many in flight, and asynchronous puts until all of it is on the device. Turns are interleaved, so that a noisy
neighbour meets all of them. The control plane, any thread.
"""
import errno
import logging
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rmq_store.base.machine.limits import existing
from rmq_store.config import sources, toml
from rmq_store.config.load import Options, resolve
from rmq_store.errors import ConfigError, RmqStoreError
from rmq_store.events import Event
from rmq_store.log.recovery.places import fit_sizes, no_directory, root_of
from rmq_store.store import MessageStore
from rmq_store.upkeep.doctor.capability import Capability, probe

__all__ = ["Advice", "Measured", "advise"]

CONTENDERS = (("mmap", "msync"), ("mmap", "fdatasync"), ("pool", "fdatasync"), ("pool", "io_uring"))
ROUNDS = 2
BODY = b"\x55" * 1024
BATCH = [b"\x55" * 4096] * 256
IN_FLIGHT = 64
SEGMENT = 128 << 20
BYTES_MAX = 1 << 30             # of one asynchronous turn
# Median of a durable 4 KiB write on written blocks that still counts as such a device.
NVME_S, SSD_S, CLOUD_S = 150e-6, 1e-3, 4e-3


@dataclass
class Measured:
    """One contender. Times in seconds, rates a second; None: not measured. refused: why it cannot be used here."""

    write_path: str
    flush_backend: str
    refused: str = ""
    sync_s: float | None = None             # median of a durable put of 1 KiB, one at a time
    sync_p99_s: float | None = None
    sync_rate: float | None = None          # durable puts of 1 KiB, 64 in flight
    async_bytes: float | None = None        # bytes of 4 KiB bodies until all are on the device
    times: list[float] = field(default_factory=list, repr=False)
    rates: list[float] = field(default_factory=list, repr=False)
    bandwidths: list[float] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        return f"{self.flush_backend} ({self.write_path})"

    def settle(self) -> None:
        if self.times:
            self.sync_s = statistics.median(self.times)
            self.sync_p99_s = sorted(self.times)[min(len(self.times) - 1, len(self.times) * 99 // 100)]
        self.sync_rate = statistics.median(self.rates) if self.rates else None
        self.async_bytes = statistics.median(self.bandwidths) if self.bandwidths else None


@dataclass
class Advice:
    """What advise proposes: `profile` is the built-in one to begin with, `options` what a store here should have (the profile's
    values and those that the numbers changed), `reasons` why."""

    path: str
    capability: Capability
    measured: list[Measured]
    profile: str
    options: dict[str, Any]
    reasons: list[str]

    def toml(self) -> str:
        """The options as a profile."""
        told = "\n".join(f"# {reason}" for reason in self.reasons)
        head = {"description": f"Measured for {self.path}; begins with {self.profile}"}
        return "\n".join([told, *toml.lines({**head, **self.options}), ""])

    def write(self, target: str | os.PathLike[str]) -> str:
        """Writes the profile to a path, or under a name to the user's profiles. Returns the path.

        Raises FileExistsError if it exists already, ConfigError for the name of a built-in profile, OSError."""
        text = destination(target)
        with open(text, "x", encoding="utf-8") as file:
            file.write(self.toml())
            file.flush()
            os.fsync(file.fileno())
        return text

    def as_dict(self) -> dict[str, Any]:
        hidden = ("times", "rates", "bandwidths")
        return {"path": self.path, "profile": self.profile, "options": self.options, "reasons": self.reasons,
                "measured": [{k: v for k, v in asdict(m).items() if k not in hidden} for m in self.measured],
                "capability": self.capability.as_dict()}


def destination(target: str | os.PathLike[str]) -> str:
    """The path that Advice.write(target) makes, its directory made. Raises what write raises; so it can be asked before the
    measuring."""
    text = os.fspath(target)
    if "/" not in text and not text.endswith(".toml"):
        if text in sources.profile_names():
            raise ConfigError(f"profile {text} is built in: give yours another name, or a path")
        text = os.path.join(sources.user_profiles(), f"{text}.toml")
    if os.path.lexists(text):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), text)
    os.makedirs(os.path.dirname(os.path.abspath(text)), exist_ok=True)
    return text


def advise(path: str | os.PathLike[str], *, seconds: float = 10.0,
           progress: Callable[[str], object] | None = None) -> Advice:
    """Measures the device under `path`, or under the nearest directory that exists, for about `seconds`. Proposes a profile.

    It needs up to some GiB of free space, at most an eighth of it, and frees all of it at the end. progress: called with a
    sentence before each turn. Raises ConfigError for unusable `seconds`, OSError if the directory cannot be written.
    """
    if not 0 < seconds <= 3600:
        raise ConfigError(f"seconds is {seconds}: expected more than 0 and at most 3600")
    root = root_of(path)
    if os.path.exists(root) and not os.path.isdir(root):
        raise no_directory(root)
    place = existing(root)
    facts = probe(place, measure=True)
    if not facts.writable:
        raise OSError(facts.write_error, os.strerror(facts.write_error), place)
    measured = [Measured(*contender) for contender in CONTENDERS]
    turn = seconds / (ROUNDS * len(CONTENDERS) * 2)
    with _said_once():
        for _ in range(ROUNDS):
            _round(measured, place, turn, facts.free, progress)
    for m in measured:
        m.settle()
    return _propose(root, facts, measured)


def _round(measured: list[Measured], place: str, seconds: float, free: int, progress: Callable[[str], object] | None) -> None:
    for m in measured:
        if m.refused:
            continue
        if progress is not None:
            progress(m.name)
        try:
            _synchronous(m, place, seconds)
            _asynchronous(m, place, seconds, free)
        except (RmqStoreError, OSError) as error:
            m.refused = str(error)


class _Once(logging.Filter):
    """Warnings of the stores opened by one thread, each event once: all of them meet the same machine."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.thread != self._thread:
            return True
        event = getattr(record, "event", record.getMessage())
        new = event not in self._said
        self._said.add(event)
        return new


@contextmanager
def _said_once() -> Iterator[None]:
    log, once = logging.getLogger("rmq_store." + Event.BUFFERS_REFUSED.room), _Once()
    log.addFilter(once)
    try:
        yield
    finally:
        log.removeFilter(once)


@contextmanager
def _scratch(m: Measured, place: str, mode: str) -> Iterator[MessageStore]:
    folder = tempfile.mkdtemp(prefix=".rmqstore-advise-", dir=place)
    try:
        with MessageStore.open(folder, write_path=m.write_path, flush_backend=m.flush_backend, flush_mode=mode,
                               segment_size_bytes=SEGMENT, index_enabled=False, _environment={}) as store:
            yield store
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _synchronous(m: Measured, place: str, seconds: float) -> None:
    clock = time.perf_counter
    with _scratch(m, place, "sync") as store:
        for _ in range(5):
            store.put("T", BODY)
        end = clock() + seconds / 2
        while (begin := clock()) < end or not m.times:
            store.put("T", BODY)
            m.times.append(clock() - begin)
        waiting = deque(store.put_async("T", BODY) for _ in range(IN_FLIGHT))
        begin, done = clock(), 0
        while clock() < begin + seconds / 2 or not done:
            waiting.popleft().result()
            done += 1
            waiting.append(store.put_async("T", BODY))
        m.rates.append(done / (clock() - begin))
        for future in waiting:
            future.result()


def _asynchronous(m: Measured, place: str, seconds: float, free: int) -> None:
    clock = time.perf_counter
    most = min(BYTES_MAX, free // 8)
    size = sum(map(len, BATCH))
    with _scratch(m, place, "async") as store:
        begin, stored = clock(), 0
        while (clock() < begin + seconds and stored < most) or not stored:
            store.put_many("T", BATCH)
            stored += size
        store.flush()
        m.bandwidths.append(stored / (clock() - begin))


# ---- from numbers to a profile

def _propose(path: str, facts: Capability, measured: list[Measured]) -> Advice:
    good = [m for m in measured if not m.refused and m.sync_s and m.sync_rate and m.async_bytes]
    reasons = [_line(m) for m in measured]
    profile, why = _base(facts, good)
    reasons.append(f"profile {profile}: {why}")
    options: dict[str, Any] = dict(sources.profile(profile).entries)
    if good and profile != "tmpfs":
        best = max(good, key=lambda m: _score(m, good))
        options["write_path"], options["flush_backend"] = best.write_path, best.flush_backend
        reasons.append(f"{best.name}: the best of them over the three figures, {_score(best, good) * 100:.0f} % of the best "
                       "of each in the mean")
        if best.write_path == "mmap":
            options = {k: v for k, v in options.items() if not k.startswith("pool_")}
    if facts.sync_reserved_s and facts.sync_written_s and profile != "tmpfs":
        ratio = facts.sync_reserved_s / facts.sync_written_s
        reasons.append(f"a sync on reserved blocks takes {ratio:.1f} times that on written ones: "
                       + ("under sync flush segment_prezero is worth it" if ratio > 1.25 else
                          "writing zeros ahead gains little"))
        if ratio < 1.1 and facts.commits_reserved == 0:     # told, and clear; else the option's own default is fine
            options["segment_prezero"] = "off"
    fitted = _fitted(path, options)
    for name in ("pool_window_count", "segment_size_bytes", "index_slots", "index_entries_max"):
        if fitted.origin(name) in ("memory", "disk"):
            options[name] = fitted[name]
            reasons.append(f"{name} = {fitted[name]}: cut to the {fitted.origin(name)} there is")
    return Advice(path, facts, measured, profile, options, reasons)


def _fitted(path: str, options: dict[str, Any]) -> Options:
    """What opening a new store below `path` would make of the sizes."""
    values = resolve(None, options)
    profile_like = Options(dict(values), dict.fromkeys(values, "default"))
    return fit_sizes(os.path.join(path, "a-new-store"), profile_like)


def _base(facts: Capability, good: list[Measured]) -> tuple[str, str]:
    """The built-in profile to begin with, and why."""
    if facts.file_system in ("tmpfs", "ramfs"):
        return "tmpfs", f"the file system is {facts.file_system}"
    if facts.memory < min(facts.memory_machine, 1 << 30):
        return "container", f"a cgroup leaves {facts.memory >> 20} MiB of memory"
    if facts.device_limits:
        told = ", ".join(f"{k} {v}" for k, v in sorted(facts.device_limits.items()))
        return "cloud_block", f"the device is limited ({told})"
    sync = facts.sync_written_s or min((m.sync_s for m in good if m.sync_s), default=None)
    if sync is None:
        return "ssd", "nothing could be measured"
    told = f"a durable 4 KiB write takes {sync * 1e6:,.0f} µs in the median"
    if sync <= NVME_S:
        return "nvme", told
    if sync <= SSD_S:
        return "ssd", told
    return ("cloud_block", told) if sync <= CLOUD_S else ("hdd", told)


def _score(m: Measured, among: list[Measured]) -> float:
    """Geometric mean of the three figures, each as a share of the best."""
    latency = min(o.sync_s or 1e9 for o in among) / (m.sync_s or 1e9)
    rate = (m.sync_rate or 0.0) / max(o.sync_rate or 0.0 for o in among)
    bandwidth = (m.async_bytes or 0.0) / max(o.async_bytes or 0.0 for o in among)
    return float((latency * rate * bandwidth) ** (1 / 3))


def _line(m: Measured) -> str:
    if m.refused or m.sync_s is None or m.sync_p99_s is None or m.sync_rate is None or m.async_bytes is None:
        return f"{m.name}: not here: {m.refused}"
    return (f"{m.name}: a durable put of 1 KiB {m.sync_s * 1e6:,.0f} µs (p99 {m.sync_p99_s * 1e6:,.0f}), {IN_FLIGHT} in flight "
            f"{m.sync_rate:,.0f}/s; asynchronous, 4 KiB, until on the device {m.async_bytes / (1 << 20):,.0f} MiB/s")
