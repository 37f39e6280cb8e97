"""How figures are written: numbers with their units, tables of a store beside its peers, paragraphs."""
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.figures.document import Figures, NotMeasured
from rmq_store.bench.case import OURS

COLUMNS_MAX = 128
NAMES = {OURS: "rmq_store", "rocketmq": "RocketMQ", "chronicle": "Chronicle Queue", "sqlite": "SQLite", "lmdb": "LMDB",
         "rocksdb": "RocksDB", "fio": "fio", "append": "a plain file"}


def rate(value: float) -> str:
    """Of events a second: 5.21 M, 68.3 k, 7,412."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value / 1e3:.3g} k" if value >= 1e4 else f"{value:,.0f}"


def time(us: float) -> str:
    """Of microseconds: 129 ns, 0.71 µs is 710 ns, 27 ms."""
    for limit, scale, unit in ((1, 1e3, "ns"), (1e3, 1, "µs"), (1e6, 1e-3, "ms")):
        if us < limit:
            return f"{us * scale:.3g} {unit}"
    return f"{us / 1e6:.3g} s"


def plain(value: float) -> str:
    """Two or three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2g}"


def nanoseconds(value: float) -> str:
    return f"{value:,.0f}"


@dataclass(frozen=True)
class Column:
    head: str
    key: str
    shown: Callable[[float], str]


# What every table has, for what a message costs where the device is the limit as well.
RATE = Column("a second", "sustained_per_s", rate)
DURABLE = Column("a second", "msgs_per_s", rate)        # each put waits for the device: there is no burst
CPU = Column("CPU ns", "cpu_ns_per_msg", nanoseconds)
TAIL = Column("p99.9", "p999_us", time)


@dataclass(frozen=True)
class Row:
    """What a case is called, and the figure that is its rate."""

    text: str
    case: str
    rate: Column = RATE


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _held(figures: Figures, case: str, subject: str) -> str:
    """The rate that a run held; beside the rate that it was asked for, where it came to less than 99 % of it."""
    held = figures.get(case, "held_per_s", subject)
    try:
        asked = figures.get(case, "rate_per_s", subject)
    except NotMeasured:
        asked = held
    return rate(held) if held >= 0.99 * asked else f"{rate(held)} of {rate(asked)}"


HELD = Column("a second", "held_per_s", rate)


def cell(figures: Figures, case: str, column: Column, subject: str = OURS) -> str:
    """The median; a dash where the run has no such figure."""
    try:
        if column is HELD:
            return _held(figures, case, subject)
        return column.shown(figures.get(case, column.key, subject))
    except NotMeasured:
        return "–"


def beside(figures: Figures, rows: Sequence[Row], peers: Sequence[str], *more: Column) -> str:
    """A row for each case: rate, processor time and p99.9 of this library, and then of each peer."""
    subjects = (OURS, *peers)
    columns = (None, CPU, TAIL, *more)
    head = ["", *(f"{NAMES[s]}: {(c or RATE).head}" if c is None else c.head for s in subjects for c in columns)]
    return grid(head, [[row.text, *(cell(figures, row.case, c or row.rate, s) for s in subjects for c in columns)]
                       for row in rows])


def subjects(figures: Figures, case: str, column: Column, names: Sequence[str], *more: Column) -> str:
    """One case, a row for each subject that ran it."""
    found = [s for s in names if s in figures.subjects(case)]
    columns = (column, CPU, TAIL, *more)
    return grid(["", *(c.head for c in columns)],
                [[NAMES.get(s, s), *(cell(figures, case, c, s) for c in columns)] for s in found])


def paragraph(text: str) -> str:
    """Wrapped as the pages are."""
    return "\n".join(textwrap.wrap(" ".join(text.split()), COLUMNS_MAX, break_long_words=False, break_on_hyphens=False)) + "\n"


def bullets(*texts: str) -> str:
    """A list, wrapped."""
    return "".join("\n".join(textwrap.wrap("- " + " ".join(t.split()), COLUMNS_MAX, subsequent_indent="  ",
                                           break_long_words=False, break_on_hyphens=False)) + "\n" for t in texts)


def place(make: Callable[[Figures], str]) -> Callable[[Figures], str]:
    """A place says why where its figures were not measured."""
    def made(figures: Figures) -> str:
        try:
            return make(figures)
        except NotMeasured as why:
            return paragraph(f"The last run did not measure this ({why}).")
    return made
