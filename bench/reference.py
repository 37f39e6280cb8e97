"""The reference run: everything that documents quote, in one command on an idle machine, about twenty minutes.

    python -m bench.reference --dir DIR         # root, for the disks that it makes; 14 GiB free

Runs the suite, load/uring_steps and load/put_lock, keeps their JSON in bench/results (the suite's HTML too), and writes the
tables of docs/choosing-a-backend.md from it. `--docs` only writes these tables again, from the newest files there.
"""
import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from bench import suite
from bench.load import put_lock, uring_steps
from rmq_store.bench import figures

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "choosing-a-backend.md"
BEGIN, END = "<!-- Made by `python -m bench.reference`: begin -->\n", "<!-- end -->\n"

# case of the suite -> what it is called in the table
PAGES = {"page_mmap_msync": "`mmap`, `msync`", "page_mmap_fdatasync": "`mmap`, `fdatasync`",
         "page_pool_fdatasync": "`pool`, `fdatasync`", "page_uring": "`pool`, `io_uring`, direct",
         "page_fio": "fio, write and fdatasync", "page_fio_direct": "fio, O_DIRECT and O_DSYNC",
         "page_default": "default, zeros written ahead", "page_sparse": "the same on a sparse file"}
MANY = {"one": "one thread", "threads_64": "64 threads", "window_64": "`put_async`, 64 in flight",
        "window_512": "`put_async`, 512 in flight", "asyncio_512": "asyncio, 512 in flight", "one_sqlite": "SQLite, one thread",
        "window_512_rocketmq": "RocketMQ, 512 in flight"}
STREAM = {"sustained": "`pool`, `io_uring`, direct", "sustained_fio": "fio, O_DIRECT, same depth",
          "sustained_rocketmq": "RocketMQ, pool"}

Found = Mapping[str, Any]


def newest(kind: str) -> tuple[Path, Found] | None:
    """The last result of a kind that is no smoke run."""
    for path in sorted(RESULTS.glob(f"{kind}-*.json"), reverse=True):
        found: Found = json.loads(path.read_text())
        if not found.get("smoke"):
            return path, found
    return None


def grid(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _medians(run: Found, key: str) -> dict[str, float]:
    """Of a case of the suite, with `device_mib_per_s`: what reached the device."""
    found = figures.medians(run["results"][run["cases"][key]]["runs"]) if key in run["cases"] else {}
    # RocketMQ tells messages, and the size of a record
    if {"sustained_per_s", "record_bytes"} <= found.keys() and "flushed_mib_per_s" not in found:
        found["flushed_mib_per_s"] = found["sustained_per_s"] * found["record_bytes"] / (1 << 20)
    device = found.get("flushed_mib_per_s", found.get("mib_per_s"))
    return found if device is None else {**found, "device_mib_per_s": device}


def _columns(run: Found, names: Mapping[str, str], *columns: tuple[str, str, int]) -> str:
    """Cases of the suite against (figure, head, decimals)."""
    rows = [(name, *(figures.number(m.get(figure), decimals) for figure, _, decimals in columns))
            for key, name in names.items() if (m := _medians(run, key))]
    return grid(("", *(head for _, head, _ in columns)), rows)


def _machine(path: Path, found: Found) -> str:
    facts = found["machine"] if "machine" in found else next(iter(found["machines"].values()))
    at = f"[{path.name}](../{path.relative_to(ROOT).as_posix()})"
    device, name = facts["device"] or {}, facts["file_system"].get("type", "a file system unknown")
    return (f"{facts['cpu']}{' (virtual)' if facts['virtual_machine'] else ''}, {facts['cpus']} CPUs, Linux {facts['kernel']}, "
            f"{name} {'with' if device.get('journal') else 'without'} a journal: {at}.\n")


def _beside(run: Found, places: list[str]) -> str:
    by_name: dict[str, dict[str, float]] = {}
    for result in run["results"]:
        if result["dir"] in places and (m := figures.medians(result["runs"])) and "msgs_per_s" in m:
            by_name.setdefault(result["name"], {})[result["dir"]] = m["msgs_per_s"]
    return grid(("puts a second", *places), [(name, *(figures.number(row.get(p), 0) for p in places))
                                             for name, row in by_name.items()])


def _suite(path: Path, run: Found) -> str:
    latency = (("p50_us", "p50 µs", 1), ("p99_us", "p99 µs", 1), ("msgs_per_s", "a second", 0))
    places = list(run["machines"])[1:]
    return "\n".join((
        _machine(path, run), "One durable put of a 4 KiB record:\n", _columns(run, PAGES, *latency),
        "Durable puts of 1 KiB that share syncs:\n", _columns(run, MANY, *latency),
        "Asynchronous, 4 KiB, 8 GiB, until the device has it:\n",
        _columns(run, STREAM, ("device_mib_per_s", "MiB/s", 0), ("p999_us", "p99.9 µs", 1), ("max_us", "worst µs", 0)),
        *(["Disks made on this machine, beside one another:\n", _beside(run, places)] if places else [])))


def _disks(path: Path, run: Found) -> str:
    """Of a suite that was run for the disks it makes: what it found there, where the newest suite made none."""
    suite = newest("suite")
    if suite is not None and len(suite[1]["machines"]) > 1:
        return ""
    at = f"[{path.name}](../{path.relative_to(ROOT).as_posix()})"
    return f"Disks made on that machine, beside one another: {at}.\n\n{_beside(run, list(run['machines']))}"


def _uring(path: Path, found: Found) -> str:
    parts = ["io_uring, one means after the other:\n", _machine(path, found)]
    for kind in dict.fromkeys(r["kind"] for r in found["rows"]):
        rows = [(r["step"], *([r["refused"], "", "", ""] if "refused" in r else [
            figures.number(r["mib_per_s"], 1), figures.number(r["p50_us"], 1), figures.number(r["p99_us"], 1),
            figures.number(r["cpu_us_per_write"], 2)])) for r in found["rows"] if r["kind"] == kind]
        parts.append(grid((kind, "MiB/s", "p50 µs", "p99 µs", "CPU µs a write"), rows))
    return "\n".join(parts)


def _lock(path: Path, found: Found) -> str:
    most = max(r["producers"] for r in found["rows"])
    rows = [(r["what"], r["lock"], figures.number(r["rate_per_s"], 0), figures.number(r["cpu_us"], 2))
            for r in found["rows"] if r["producers"] == most and r["rate_per_s"] is not None]
    table = grid(("", "lock", "a second", "CPU µs"), rows)
    return "\n".join((f"The put lock, {most} producers:\n", _machine(path, found), table))


TABLES: dict[str, Callable[[Path, Found], str]] = {"suite": _suite, "disks": _disks, "uring-steps": _uring, "put-lock": _lock}


def tables() -> str:
    """What stands between BEGIN and END: a part for each kind of result that is there."""
    return "\n".join(table(*found) for kind, table in TABLES.items() if (found := newest(kind)) is not None)


def written(page: str, text: str) -> str:
    """`page` with `text` between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name}: no line {BEGIN.strip()}, or none {END.strip()} behind it")
    return before + BEGIN + text + END + after


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs")
    p.add_argument("--docs", action="store_true", help="measure nothing, write the tables from the newest results")
    args = p.parse_args(argv)
    failed = 0
    if not args.docs:
        failed = suite.main(["--dir", str(args.dir)])
        for kind, driver in (("uring-steps", uring_steps), ("put-lock", put_lock)):
            at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            driver.main(["--dir", str(args.dir), "--out", str(RESULTS / f"{kind}-{at}.json")])
    PAGE.write_text(written(PAGE.read_text(), tables()))
    return failed


if __name__ == "__main__":
    sys.exit(main())
