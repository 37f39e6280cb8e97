"""The style guide as a program: python tools/tidy.py [FILE...]. Prints one line a finding; exit 1 if there is any.

Checked: length of files and lines, white space, that each source file begins by saying what it is, open ends and machine paths,
Cython's textual features, stubs for what Python imports, and that rooms import earlier rooms only.
"""
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

LINES_MAX = 500
FUNCTION_MAX = 70
COLUMNS_MAX = 128
# What is longer from before: such a file, or function, may only become shorter.
LONG_FILES = {
    "rmq_store/access/bulk/_columns.pyx": 590,
    "rmq_store/access/writer/_future.pyx": 532, "rmq_store/base/io/_io.pyx": 535,
    "rmq_store/log/flush/_ring.pyx": 600, "rmq_store/queues/consumequeue/_recover.pyx": 555,
}
LONG_FUNCTIONS = {
    ("rmq_store/access/reader/_get.pyx", "get"): 90, ("rmq_store/access/writer/_put.pyx", "_put"): 86,
}
SOURCES = {".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".java", ".sh", ".toml"}
DOCUMENTS = {".md", ".cfg", ".yml", ".yaml", ".xml", ".txt"}
CYTHON = {".pyx", ".pxd"}

# The house: rooms in wings, each with what it is for and the threads that run in it. A room may import itself, rooms above it
# in this list, and what is COMMON. The queue and index tables stand before the log, because an append takes its queue offset
# from them under the put lock.
ROOMS = {
    "base/histogram": ("log-linear histograms of 18 KiB, in C", "whoever counts"),
    "base/io": ("every system call on a store: the I/O table, its probe, futexes, locks, control files", "all"),
    "base/machine": ("the device, memory and limits of this process, and the sizes that follow", "callers"),
    "base/segment": ("files of the log: mapped, made ahead, held", "allocator"),
    "codec": ("bytes of records, batches, properties, ids", "callers"),
    "filter": ("SQL92 filters: parsed, made a program, evaluated in C over stored properties", "callers"),
    "queues/consumequeue": ("ConsumeQueue files and the table of all queues", "dispatcher, checkpoint"),
    "queues/index": ("IndexFile: by key and time", "dispatcher, checkpoint"),
    "log/pool": ("TransientStorePool: one circle of memory, mapped twice", "callers, committer"),
    "log/commitlog": ("the put lock, positions, one append", "callers"),
    "log/flush": ("commit and flush back ends: msync, fdatasync, io_uring", "committer, flusher, ring"),
    "log/dispatch": ("from the log to queues and index; following another process", "dispatcher"),
    "log/recovery": ("opening after a crash, checkpoint, lock and abort files, salvage, where parts lie", "whoever opens"),
    "access/core": ("the native parts of an open store in one object", "callers"),
    "access/writer": ("put, put_many, put_batch, put_async, flush", "callers, completer"),
    "access/reader": ("get, scan, query; messages as views", "callers"),
    "access/waiting": ("arrivals: get(wait=), listeners, event loops", "callers, listeners"),
    "access/bulk": ("many records at once, for Spark and copies", "callers"),
    "services/consumer": ("groups, offsets, retries, config/*.json", "callers, control thread"),
    "services/delivery": ("copies of messages that are due, by a thread that no put notices", "delay timer, timer"),
    "services/delay": ("delay levels", "delay timer"),
    "services/timer": ("timer messages at any time: timer wheel, timer log", "timer, control thread"),
    "services/compaction": ("the newest message of each key: tables and compaction logs", "callers, compaction"),
    "services/cleaning": ("deleting what is old", "control thread"),
    "services/transaction": ("half messages, their decisions, and the check-back", "callers, transactions, control thread"),
    "services/dispatchers": ("functions that get every dispatched record, at their own pace", "dispatchers, control thread"),
    "services/statistics": ("counts, rates, live figures", "callers, publisher"),
    "services/integrity": ("manifests, verify, scrub, repair", "sealer, callers"),
    "services/backup": ("a store read as files, images of it, directories of backups", "callers"),
    "remoting": ("frames of RocketMQ remoting, a client, TLS contexts", "whoever serves; replica metadata"),
    "replication": ("the HA protocol: a master that serves slaves, a slave that follows a master", "HA, control thread"),
    "opened": ("an open store as a whole: opening, what it tells, its control thread, its end", "control thread, publisher"),
    "store": ("MessageStore", "callers"),
    "aio": ("AsyncMessageStore", "event loops"),
    "metrics": ("Prometheus", "callers"),
    "telemetry": ("OpenTelemetry", "callers"),
    "network": ("the network thread of a broker or a name server: frames without the GIL; TLS", "network; whoever serves"),
    "namesrv": ("a name server: routes of brokers and topics", "whoever serves"),
    "broker": ("a broker: processors by request code, and what they share", "front, workers, held requests, keeper, TLS, HTTP"),
    "pytest_plugin": ("a store and a broker for tests", "callers"),
    "upkeep/moving": ("copy, export, import, backup, restore", "callers"),
    "upkeep/promoting": ("a slave that becomes a master", "callers"),
    "upkeep/doctor": ("what a machine can do, and what that means for a store", "callers"),
    "spark": ("data source, sink and jobs for Apache Spark", "Spark's tasks"),
    "bench": ("rmqstore bench", "callers"),
    "cli": ("the rmqstore command", "callers"),
}
# What every room may import; these may import only each other.
COMMON = {"errors", "status", "events", "config", "version", "fields", "modules", "_extensions"}
# The package's own names, and what starts the command line: they may import everything.
DOORS = {"rmq_store/__init__", "rmq_store/__main__"}

# Spelt in pieces, or this file would find itself.
BANNED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK|NotImplemented" r"Error)\b")
HOSTS = re.compile(r"\b(?:pypi\." r"org|pythonhosted\." r"org|deb\.debian\." r"org|repo1?\.maven|registry\.npmjs)\b")
MACHINE = re.compile(r"(?<![\w.$}])/(?:wo" r"rk|r" r"oot|ho" r"me/\w+|opt/ve" r"nv|tm" r"p/brief)(?:/|\b)")
POSIX = re.compile(r"\s*(?:from\s+posix\b(?!\.stdlib cimport posix_memalign$)|cimport\s+posix\b)")    # memory is no system call
TEXTUAL = re.compile(r"""^\s*(?:DEF\s+\w+\s*=|IF\s+.*:\s*$|ELIF\s+.*:\s*$|include\s+["'])""")
PYTHON_VISIBLE = re.compile(r"^(?:def|class|cpdef|async def|cdef class)\s+(?:[\w.\[\] ]+\s)?(\w+)")
FUNCTION = re.compile(r"^(\s*)(?:async def|def|cpdef|cdef)\s+(?!class\b|struct\b|enum\b|extern\b)[^=]*?(\w+)\s*\(")
IMPORT = re.compile(r"^\s*(?:from\s+(?P<source>[\w.]+)\s+c?import\s+(?P<names>[^#]+)|c?import\s+(?P<modules>[\w., ]+))")


def left_over(relative: Path) -> bool:
    return any(part in ("build", "dist", "__pycache__") or (part[0] == "." and part != ".ci") for part in relative.parts)


def listed(root: Path) -> list[Path]:
    """Files git knows or would add; in an unpacked source archive, all but what builds and tests leave behind."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
        found = [root / name for name in out.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [p for p in root.rglob("*") if p.suffix != ".so" and not left_over(p.relative_to(root))]
    return sorted(p for p in found if p.is_file())


def shebang(path: Path) -> bool:
    with path.open("rb") as f:
        return f.read(2) == b"#!"


def docstring(body: list[str]) -> int:
    """How many lines the text at the front of a body has."""
    if not body or not body[0].lstrip().startswith('"""'):
        return 0
    rest = body[0].lstrip()[3:]
    return next((n for n, line in enumerate([rest, *body[1:]], 1) if '"""' in line), 0)


def functions(lines: list[str]) -> Iterator[tuple[int, str, int]]:
    """(number of its first line, name, lines without its docstring) of each function, Python's and Cython's."""
    for i, line in enumerate(lines):
        match = FUNCTION.match(line)
        if match is None:
            continue
        head = i
        while head < len(lines) - 1 and not re.search(r":\s*(?:#.*)?$", lines[head]) and not lines[head].endswith((";", ")")):
            head += 1
        indent, end = len(match[1]), head
        for k in range(head + 1, len(lines)):
            text = lines[k].lstrip()
            if text and len(lines[k]) - len(text) > indent:
                end = k
            elif text and not text.startswith("#"):
                break
        yield i + 1, match[2], end - i + 1 - docstring(lines[head + 1:end + 1])


def length_findings(name: str, suffix: str, lines: list[str]) -> Iterator[tuple[int, str]]:
    most = LONG_FILES.get(name, LINES_MAX)
    if len(lines) > most:
        yield len(lines), f"{len(lines)} lines, at most {most}: split the file by job"
    if name in LONG_FILES and len(lines) < most - 20:
        yield 1, f"{len(lines)} lines: LONG_FILES of tools/tidy.py says {most}, take it down"
    if suffix in (".py", ".pyx"):
        for number, function, count in functions(lines):
            most = LONG_FUNCTIONS.get((name, function), FUNCTION_MAX)
            if count > most:
                yield number, f"{function} has {count} lines, at most {most}: give its parts names"


def text_findings(path: Path, lines: list[str], source: bool) -> Iterator[tuple[int, str]]:
    first = next((line for line in lines if line.strip() and not line.startswith(("#!", "#ifndef"))), "")
    spoken = first.startswith(('"""', 'r"""', "#", "/*", "//"))
    if source and path.suffix not in (".toml", ".java", ".pyi") and lines and not spoken:
        yield 1, "the file does not begin by saying what it is"
    for number, line in enumerate(lines, 1):
        if source and len(line) > COLUMNS_MAX:
            yield number, f"{len(line)} columns, at most {COLUMNS_MAX}"
        if source and line != line.rstrip():
            yield number, "space at the end of the line"
        if source and "\t" in line:
            yield number, "tab"
        for pattern, what in ((BANNED, "open end"), (MACHINE, "path of one machine"), (HOSTS, "host of a registry")):
            if match := pattern.search(line):
                yield number, f"{what}: {match[0]}"


def cython_findings(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if TEXTUAL.match(line):
            yield number, "DEF, IF and include are textual: use cdef enum, C constants, cimport"
        if POSIX.match(line) and path.parent.name != "io":
            yield number, "system calls on a store go through the I/O table (rmq_io)"
    if path.suffix == ".pyx" and not path.with_suffix(".pyi").exists():
        visible = next((m[1] for line in lines if (m := PYTHON_VISIBLE.match(line))), None)
        if visible:
            yield 1, f"Python can import {visible}: a stub {path.stem}.pyi is missing"


def room_of(module: str) -> str:
    """rmq_store.base.io._io is base/io, rmq_store.codec._record is codec, rmq_store.store is store; rmq_store itself: empty."""
    wing, *rest = [*module.split(".")[1:], ""]
    return room if rest and (room := f"{wing}/{rest[0]}") in ROOMS else wing


def imported(line: str, package: list[str]) -> list[str]:
    """Modules of this project that an import or cimport line names, as absolute names."""
    match = IMPORT.match(line)
    if not match:
        return []
    if match["modules"]:
        modules = [part.split()[0] for part in match["modules"].split(",") if part.strip()]
    else:
        source = match["source"]
        if source.startswith("."):
            dots = len(source) - len(source.lstrip("."))
            source = ".".join([*package[:len(package) - dots + 1], *filter(None, [source.lstrip(".")])])
        names = [n.split()[0] for n in match["names"].strip("() \n").split(",") if n.strip("() ")]
        modules = [f"rmq_store.{n}" for n in names] if source == "rmq_store" else [source]
    return [m for m in modules if m == "rmq_store" or m.startswith("rmq_store.")]


def import_findings(relative: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    module = relative.with_suffix("")
    package = list(relative.parent.parts)
    room = room_of(".".join(module.parts))
    if str(module) in DOORS:
        return
    if room not in ROOMS and room not in COMMON:
        if module.name != "__init__" or len(lines) > 1:     # a wing has no code of its own
            yield 1, f"room {room} is in no list: give it its place in ROOMS or COMMON of tools/tidy.py"
        return
    order = list(ROOMS)
    allowed = COMMON | ({*order[:order.index(room) + 1]} if room in ROOMS else set())
    for number, line in enumerate(lines, 1):
        for name in imported(line, package):
            if room_of(name) not in allowed:
                yield number, f"room {room} must not import {name}: rooms that stand before it in ROOMS, or common ones"


def findings(root: Path, path: Path) -> Iterator[str]:
    relative = path.relative_to(root)
    source = path.suffix in SOURCES or (path.suffix == "" and relative.parts[0] in ("tools", ".ci") and shebang(path))
    if relative.parts[0] == "rmq_store" and path.suffix in (".c", ".so", ".pxi", ".cpp", ".html"):
        yield f"{relative}: made by a build or included as text; it has no place in a room"
        return
    if not source and path.suffix not in DOCUMENTS:
        return
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines[-1]:
        yield f"{relative}:{len(lines)}: no newline at the end of the file"
    lines = lines[:-1] if not lines[-1] else lines
    found = list(text_findings(path, lines, source))
    if source:
        found += length_findings(relative.as_posix(), path.suffix, lines)
    if path.suffix in CYTHON:
        found += cython_findings(path, lines)
    if relative.parts[0] == "rmq_store" and path.suffix in CYTHON | {".py", ".pyi"}:
        found += import_findings(relative, lines)
    if path.suffix == ".pyi" and not any(path.with_suffix(s).exists() for s in (".pyx", ".py")):
        found.append((1, "a stub of nothing"))
    for number, what in sorted(found):
        yield f"{relative}:{number}: {what}"


def check(root: Path, paths: Iterable[Path] | None = None) -> list[str]:
    return [f for path in (paths or listed(root)) for f in findings(root, path)]


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    found = check(root, [Path(a).resolve() for a in sys.argv[1:]])
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
