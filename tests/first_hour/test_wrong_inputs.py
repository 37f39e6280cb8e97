"""Every line of wrong_inputs.py: its exit code, what it says, and never a traceback. The command line runs in this process, so
what main() lets through fails the test."""
import os
import shlex
import shutil
import subprocess

import pytest

from rmq_store import MessageStore
from tests.first_hour.wrong_inputs import WRONG_INPUTS

SMALL = {"segment_size_bytes": 1 << 16, "index_slots": 100, "index_entries_max": 1000, "consumequeue_file_size_bytes": 2000}
MAGIC, NEWER = b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xa9"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The places that need no mount; nothing in the table changes them."""
    base = tmp_path_factory.mktemp("places")
    with MessageStore.open(base / "s", **SMALL) as store:
        for queue in (0, 1):
            store.put("Topic", b"x", queue_id=queue, keys="k")
        store.put("Other", b"y")
    (base / "dir").mkdir()
    (base / "file").write_text("not a store\n")
    (base / "file.toml").write_text("flush_mode = \n")
    (base / "lines").write_text("one\n")
    (base / "large").write_bytes(bytes(70_000))
    shutil.copytree(base / "s", base / "newer")
    log = base / "newer" / "commitlog" / ("0" * 20)
    log.write_bytes(log.read_bytes().replace(MAGIC, NEWER))
    shutil.copytree(base / "s", base / "gap")
    (base / "gap" / "commitlog" / f"{99:020d}").write_bytes(b"x" * 99)
    return base


def mounted(place, options):
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.strip()}")


@pytest.fixture
def places(made, tmp_path, request):
    words = request.getfixturevalue("line")
    found = {name: made / name for name in ("s", "dir", "file", "lines", "large", "newer", "gap")}
    found |= {"none": tmp_path / "none", "new": tmp_path / "new", "log": made / "s" / "commitlog" / ("0" * 20),
              "held": made / "s"}
    mounts = []
    if "{ro}" in words or "{full}" in words:
        found["ro"] = found["full"] = tmp_path / "disk"
        mounted(found["ro"], "size=1m")
        mounts.append(found["ro"])
        if "{ro}" in words:
            shutil.copytree(made / "s", found["ro"], dirs_exist_ok=True)
            subprocess.run(["mount", "-o", "remount,ro", found["ro"]], check=True)
        else:
            with open(found["full"] / "pad", "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
                while True:
                    file.write(bytes(4096))
    holder = MessageStore.open(made / "s", **SMALL) if "{held}" in words else None
    yield {name: str(path) for name, path in found.items()}
    if holder is not None:
        holder.close()
    for place in mounts:
        subprocess.run(["umount", place], check=True)


def content(root):
    """Names, sizes and times, but for the lock: whoever is refused has had it."""
    return sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in root.rglob("*") if p.name != "lock")


@pytest.mark.parametrize(("line", "code", "words"), WRONG_INPUTS, ids=[line or "nothing" for line, _, _ in WRONG_INPUTS])
def test_wrong_input(line, code, words, places, made, tmp_path, rmqstore, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    before = content(made / "dir"), content(made / "newer")
    arguments = [os.fsdecode(word.format(**places).replace("\xff", "\udcff").encode("utf-8", "surrogateescape"))
                 for word in shlex.split(line)]
    found, out, err = rmqstore(*arguments)
    said = " ".join((out + err).split())
    assert found == code, (found, said)
    assert "Traceback" not in said and "Error(" not in said
    for word in words:
        assert " ".join(word.format(**places).split()) in said, said
    assert (content(made / "dir"), content(made / "newer")) == before       # nothing was made, or changed
    assert not (tmp_path / "none").exists() and not (tmp_path / "commitlog").exists()


def test_there_are_sixty_of_them():
    lines = [line for line, _, _ in WRONG_INPUTS]
    assert len(lines) == len(set(lines)) >= 60
    commands = {line.split()[0] for line in lines if line}
    assert commands >= {"get", "put", "stat", "query", "tail", "dump", "demo", "clean", "verify", "repair", "topics", "groups",
                        "offsets", "bench", "advise", "doctor", "config", "readback"}
