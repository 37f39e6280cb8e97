"""What one run is: a Case. And how lists of settings become cases, in the order in which they are to be run.

Control plane. Every field is plain data, so that a case travels to its process, and into a result, as JSON.
"""
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from rmq_store.errors import ConfigError

OURS = "rmq_store"
FILE_STATES = ("default", "sparse", "fallocated", "prezeroed")


class Skip(Exception):
    """This run cannot be done here; the text says why."""


@dataclass(frozen=True)
class Workload:
    """A named workload: what it asks, and the settings it takes where none are given."""

    text: str
    room: str                       # the module that runs it
    flush_mode: str = "async"
    producers: int = 1
    window: int = 1
    batch: int = 1
    props: str = "lean"


WORKLOADS: dict[str, Workload] = {
    "put_async": Workload("one producer, asynchronous flush: puts a second, and each call's time", "puts"),
    "put_sustained": Workload("one producer, asynchronous flush, each call timed, until all of --mib is on the device: "
                              "the device is the limit", "puts"),
    "put_sync": Workload("one producer, each put durable when it returns", "puts", flush_mode="sync"),
    "put_many": Workload("batches in one call; with --flush-mode sync each batch is durable when the call returns", "puts",
                         batch=128),
    "put_async_window": Workload("put_async: one thread keeps a window of puts under way", "puts", flush_mode="sync",
                                 window=512),
    "put_asyncio": Workload("asyncio tasks, as many as the window, each awaiting one put at a time", "puts",
                            flush_mode="sync", window=64),
    "put_threads": Workload("threads that put, asynchronous flush", "puts", producers=4),
    "put_sync_threads": Workload("threads that each wait for their own put to be durable", "puts", flush_mode="sync",
                                 producers=64),
    "get": Workload("pulls of 32 from a queue: as views, each body looked at, and with every field decoded", "reads",
                    props="full"),
    "query_key": Workload("queries by key, one hit each, and by unique key", "reads", props="full"),
    "scan": Workload("the raw log walked in C, without and with body checksums", "reads", props="full"),
    "recover": Workload("time to open: clean, after a kill, and with queues lost", "reads", props="full"),
    "mixed": Workload("producers that put and a reader behind them: puts, pulls, and time from put to read", "mixed"),
}


@dataclass(frozen=True)
class Case:
    """One run of one workload on one store or peer. Zero, or empty, means the workload's own setting."""

    workload: str
    subject: str = OURS             # or the name of a peer
    write_path: str = "mmap"
    flush_backend: str = "auto"
    flush_mode: str = ""
    file_state: str = "default"
    body: int = 1024                # bytes
    props: str = ""
    producers: int = 0
    window: int = 0
    batch: int = 0
    rate: int = 0                   # puts a second of all producers together; 0: as fast as it goes
    seconds: float = 2.0
    cap_mib: int = 1400             # at most so many MiB of log
    pretouch_mib: int = 0
    settle_s: float = 0.0           # rest between what came before and a measured stretch, within the run
    segment_mib: int = 1024
    options: Mapping[str, Any] = field(default_factory=dict)    # more options of the store, or of the peer
    label: str = ""                 # the name to show; empty: made from the settings

    def complete(self) -> "Case":
        """With the workload's settings in the place of zeros. Raises ConfigError for what makes no sense."""
        if self.workload not in WORKLOADS:
            raise ConfigError(f"workload {self.workload!r}: expected one of {', '.join(WORKLOADS)}")
        if self.file_state not in FILE_STATES:
            raise ConfigError(f"file state {self.file_state!r}: expected one of {', '.join(FILE_STATES)}")
        for name, least in (("body", 0), ("rate", 0), ("cap_mib", 1), ("segment_mib", 1), ("pretouch_mib", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} {getattr(self, name)}: expected at least {least}")
        if self.seconds <= 0:
            raise ConfigError(f"seconds {self.seconds}: expected more than 0")
        own = WORKLOADS[self.workload]
        return replace(self, **{n: getattr(self, n) or getattr(own, n)
                                for n in ("flush_mode", "producers", "window", "batch", "props")})

    def name(self) -> str:
        """The settings that tell this case from others, for tables."""
        own = WORKLOADS[self.workload]
        parts = [self.workload]
        if self.subject == OURS:
            parts += [self.write_path, self.flush_backend]
        if self.flush_mode not in ("", own.flush_mode):
            parts.append(self.flush_mode)
        if self.file_state != "default":
            parts.append(self.file_state)
        parts.append(f"{self.body} B")
        for n, sign in (("producers", "{} threads"), ("window", "window {}"), ("batch", "batch {}"), ("rate", "{}/s")):
            value = getattr(self, n)
            if value and value != getattr(own, n, 0):
                parts.append(sign.format(value))
        parts += [f"{k}={v}" for k, v in self.options.items()]
        return " ".join(parts) if self.subject == OURS else f"{self.subject}: {' '.join(parts)}"

    def shown(self) -> str:
        return self.label or self.name()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(state: Mapping[str, Any]) -> "Case":
        known = {f.name for f in fields(Case)}
        return Case(**{k: v for k, v in state.items() if k in known})


def product(workload: str, settings: Mapping[str, Sequence[Any]], **common: Any) -> Iterator[Case]:
    """One case for each combination of the settings (name of a field -> values)."""
    for values in itertools.product(*settings.values()):
        yield Case(workload, **common, **dict(zip(settings, values, strict=True))).complete()
