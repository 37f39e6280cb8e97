"""Our side of a comparison: write a case, copy a store, read it back, and compare with the lines of the real store."""
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

from rmq_store import MessageStore
from tests.interop import content

ROOT = Path(__file__).parents[2]
FAR = 4_000_000_000_000     # "whenever" in the questions by key


def options(case: content.Case, **more: object) -> dict[str, object]:
    return {**case.files, **case.settings, **case.options, **more}


def java_settings(case: content.Case, version: str) -> dict[str, object]:
    unknown = case.unknown_to.get(version, ())
    return {k: v for k, v in {**case.files, **case.settings}.items() if k not in unknown}


def write(path: Path, name: str, **more: object) -> list[int]:
    """Writes a case and closes. Returns the offset of every message."""
    case = content.CASES[name]
    with MessageStore.open(path, **options(case, **more)) as store:
        return list(content.fill(store, case))


def write_and_kill(path: Path, name: str, **more: object) -> list[int]:
    """Writes a case in a process that is killed while it goes on writing. Returns what had been acknowledged.

    Again, where the kill left a part of a record at the end: if only its properties are torn, the real store, whose checksum
    covers the body alone, keeps what ours cuts, and the two cannot be compared.
    """
    for _ in range(20):
        acknowledged = _write_and_kill(path, name, **more)
        if not _torn(path, name):
            return acknowledged
        shutil.rmtree(path)
    raise AssertionError("twenty kills in a row hit a write")


def _torn(path: Path, name: str) -> bool:
    """Whether behind the last whole record there is one whose body is whole and whose properties are not."""
    with MessageStore.open(path, readonly=True, **content.CASES[name].files) as store:
        end, size = store.max_log_offset, store.options.segment_size_bytes
    file = path / "commitlog" / f"{end // size * size:020d}"
    rest = file.read_bytes()[end % size:] if file.exists() else b""
    if not any(rest[:4]):
        return False
    (checksum,), (flags,) = struct.unpack_from(">I", rest, 8), struct.unpack_from(">i", rest, 36)
    at = 84 + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)      # hosts of IPv6 are longer
    (length,) = struct.unpack_from(">i", rest, at)
    return zlib.crc32(rest[at + 4:at + 4 + length]) & 0x7FFFFFFF == checksum


def _write_and_kill(path: Path, name: str, **more: object) -> list[int]:
    chosen = json.dumps(options(content.CASES[name], **more))
    command = [sys.executable, "-m", "tests.interop.killed_writer", path, name, chosen]
    acknowledged = []
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if line == "filled\n":
                writer.kill()       # what it manages to print until then is still read
            else:
                acknowledged.append(int(line))
        assert writer.wait() == -signal.SIGKILL
    return acknowledged


def copy(path: Path, to: Path) -> Path:
    """A copy with the modification times, which 4.9's time search goes by."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", path, to], check=True)
    return to


def readback(path: Path, like: Path, compat: str, settings: dict[str, object]) -> list[str]:
    """The lines of `rmqstore readback` on a copy of a store, which is left alone."""
    here = copy(path, path.with_name(path.name + ".readback"))
    command = [sys.executable, "-m", "rmq_store", "readback", here, "--like", like, "--compat", compat]
    for name, value in settings.items():
        command += ["-o", f"{name}={value}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stderr
    shutil.rmtree(here)
    return done.stdout.splitlines()


def messages(lines: list[str]) -> dict[int, dict]:
    """All records of a read-back by their offset, queued or not."""
    found = {}
    for line in lines:
        record = json.loads(line)
        if record["t"] == "msg" or record.get("kind") == "unqueued":
            found[record["phyOffset"]] = record
    return found


def check_equal(version: str, theirs: list[str], mine: list[str], *, crashed: bool) -> None:
    """The lines of the real store and ours are the same. After a crash, as far as the real store itself is right."""
    if crashed:
        theirs, mine = _after_a_crash(version, theirs, mine)
    assert theirs == mine, f"RocketMQ {version}: {_explain(theirs, mine)}"


def _after_a_crash(version: str, theirs: list[str], mine: list[str]) -> tuple[list[str], list[str]]:
    """Leaves out where recovery of the real store loses what ours keeps; checks that it is not the other way round.

    - Its recovery destroys the newest index file and dispatches again from a file of the log that may begin later: entries are
      missing. Where older index files stay, entries are there twice. Ours are complete. Questions for a time range depend on
      where an index file begins (entries count seconds from there), those for one message on duplicates.
    - 4.9.8 recovers before it loads its delay levels (DefaultMessageStore.load): queue entries of delayed messages that
      recovery makes again carry the hash of the tag. Ours carry the delivery time, as 4.9.8's own do when nothing crashed.
    """
    for line, our in zip(theirs, mine, strict=False):
        if '"t":"key"' in line and '"t":"key"' in our:
            x, y = json.loads(line), json.loads(our)
            if x["maxNum"] >= 32 and x["begin"] == 0 and x["end"] == FAR:
                assert set(x["hits"]) <= set(y["hits"]), (line, our)
    sides = []
    for side in (theirs, mine):
        side = [re.sub(r',"indexLastTs":.*"hits":.*', "}", line) for line in side]
        if version == "4.9.8":
            side = [re.sub(r'"tagsCode":-?\d+', '"tagsCode":0', line) if '"topic":"SCHEDULE_TOPIC_XXXX"' in line else line
                    for line in side]
        sides.append(side)
    return sides[0], sides[1]


def _explain(java: list[str], ours: list[str]) -> str:
    """The first line that differs, shortened to what a person can read."""
    for i, (a, b) in enumerate(zip(java, ours, strict=False)):
        if a != b:
            x, y = json.loads(a), json.loads(b)
            if x.keys() == y.keys():
                return f"line {i}: {[(k, x[k], y[k]) for k in x if x[k] != y[k]]} in {a[:300]}"
            return f"line {i}: {a[:500]}\n   ours: {b[:500]}"
    return f"{len(java)} lines, ours {len(ours)}"
