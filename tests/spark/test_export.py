"""Exports: with ends and beginnings, other options, killed at any step, beside each other; and what proves one. No session."""
import importlib
import json
import os
import shutil
import signal

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, CorruptionError, StoreStateError

pytestmark = pytest.mark.usefixtures("tasks")
SMALL = {"segment_size_bytes": 16384, "index_slots": 100, "index_entries_max": 1000}


def fill(root, begin, end, topic="T", size=0):
    with MessageStore.open(root, **SMALL) as store:
        return [store.put(topic, b"%06d" % i + b"x" * size, queue_id=0) for i in range(begin, end)]


def export(*given, **options):
    from rmq_store.spark import jobs

    return jobs.export(None, *map(str, given), **options)


def verify(*given, **options):
    from rmq_store.spark import jobs

    return jobs.verify_export(*map(str, given), **options)


def read(directory):
    """What a reader of the directory counts, in the order of the log."""
    import pyarrow.parquet as pq

    return sorted(int(row["body"][:6]) for name in os.listdir(directory) if name[0] not in "._"
                  for row in pq.read_table(os.path.join(directory, name), columns=["body"]).to_pylist())


def test_an_end_in_time_is_where_the_next_export_goes_on(tmp_path):
    from rmq_store.base.io._io import ProbeIo

    clock, begin = ProbeIo(keep_bytes=False), 1_700_000_000_000
    with MessageStore.open(tmp_path / "s", _io=clock, **SMALL) as store:
        for i in range(300):
            clock.set_clock(begin + i)
            store.put("T", b"%06d" % i + b"x" * 100, queue_id=0)
        clock.set_clock(None)
    assert export(tmp_path / "s", tmp_path / "e", ending_timestamp=begin + 110).rows == 110
    assert verify(tmp_path / "e", tmp_path / "s") > 1
    assert export(tmp_path / "s", tmp_path / "e", ending_timestamp=begin + 50).rows == 0
    assert export(tmp_path / "s", tmp_path / "e", ending_timestamp=begin + 111).rows == 1
    assert export(tmp_path / "s", tmp_path / "e").rows == 189
    assert read(tmp_path / "e") == list(range(300)) and verify(tmp_path / "e", tmp_path / "s")


def test_places_bound_an_export(tmp_path):
    puts = fill(tmp_path / "s", 0, 20)
    places = {"starting_physical_offset": puts[5].offset - 3, "ending_physical_offset": puts[10].offset - 40}
    assert export(tmp_path / "s", tmp_path / "e", **places).rows == 5
    assert read(tmp_path / "e") == [5, 6, 7, 8, 9]
    assert export(tmp_path / "s", tmp_path / "e", starting_physical_offset=puts[5].offset - 3).rows == 10
    assert read(tmp_path / "e") == list(range(5, 20))
    with pytest.raises(ConfigError, match=r"startingPhysicalOffset=.* the same options, or export into another directory"):
        export(tmp_path / "s", tmp_path / "e")


@pytest.mark.parametrize(("first", "second"), [
    ({"subscribe": "A"}, {"subscribe": "B"}), ({"subscribe": "A"}, {}), ({}, {"tags": "a"}), ({}, {"columns": "body"}),
    ({}, {"starting_timestamp": 5}), ({}, {"include_transactional": True}), ({}, {"properties_format": "json"}),
    ({"assign": '{"A": [0]}'}, {"assign": '{"A": [1]}'}), ({}, {"ending_offsets": '{"A": {"s": {"0": 3}}}'}),
    ({"subscribe_pattern": "A"}, {"subscribe_pattern": "B"})])
def test_other_options_are_refused(tmp_path, first, second):
    for topic in "AB":
        fill(tmp_path / "s", 0, 5, topic)
    export(tmp_path / "s", tmp_path / "e", **first)
    before = read(tmp_path / "e"), (tmp_path / "e" / "_manifest.json").read_bytes()
    with pytest.raises(ConfigError, match="give the same options, or export into another directory"):
        export(tmp_path / "s", tmp_path / "e", **second)
    assert (read(tmp_path / "e"), (tmp_path / "e" / "_manifest.json").read_bytes()) == before
    fill(tmp_path / "s", 5, 7, "A")
    assert export(tmp_path / "s", tmp_path / "e", split_size=100, io="pread", compression="snappy", **first).rows == 2


@pytest.mark.filterwarnings("ignore:topic 'U'")
def test_the_same_options_in_other_words(tmp_path):
    fill(tmp_path / "s", 0, 5)
    export(tmp_path / "s", tmp_path / "e", subscribe=["T", "U"], tags="a || b", starting_timestamp=1000)
    export(tmp_path / "s", tmp_path / "e", subscribe="U,T", tags="b||a", starting_timestamp="1970-01-01T00:00:01Z")


def test_a_manifest_of_an_earlier_release_is_not_gone_on_with(tmp_path):
    fill(tmp_path / "s", 0, 5)
    export(tmp_path / "s", tmp_path / "e")
    path = tmp_path / "e" / "_manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({"version": 1, "files": manifest["files"], "positions": manifest["positions"]}))
    assert verify(tmp_path / "e") == 1
    with pytest.raises(ConfigError, match="earlier release"):
        export(tmp_path / "s", tmp_path / "e")


def test_brokers_that_go_come_and_change_their_names(tmp_path):
    for name in "ab":
        fill(tmp_path / name, 0, 5)
    assert export(f"{tmp_path}/?", tmp_path / "out").rows == 10
    os.rename(tmp_path / "b", tmp_path / "away")
    assert export(f"{tmp_path}/?", tmp_path / "out").rows == 0
    os.rename(tmp_path / "away", tmp_path / "c")
    with pytest.raises(ConfigError, match="b is missing"):
        export(f"{tmp_path}/?", tmp_path / "out")
    os.rename(tmp_path / "c", tmp_path / "b")
    fill(tmp_path / "b", 5, 7)
    fill(tmp_path / "d", 0, 3)
    assert export(f"{tmp_path}/?", tmp_path / "out").rows == 5
    assert read(tmp_path / "out") == sorted([*range(5), *range(7), *range(3)])
    assert verify(tmp_path / "out", f"{tmp_path}/?") == 4


def killed_at(step, call):
    """Runs `call` in a child that dies before the step-th call that changes a name or makes one last; True if it died."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def guarded(real):
            def guard(*given, **more):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return real(*given, **more)
            return guard

        for name in ("rename", "fsync", "mkdir", "unlink", "rmdir"):
            setattr(os, name, guarded(getattr(os, name)))
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.untraced       # in a child
def test_killed_anywhere_no_row_is_lost_or_counts_twice(tmp_path):
    root, out = tmp_path / "s", tmp_path / "e"
    fill(root, 0, 40, size=700)
    export(root, out)
    fill(root, 40, 80, size=700)
    shutil.copytree(root, tmp_path / "before")
    shutil.copytree(out, tmp_path / "out-before")
    step = 0
    seen = set()
    while True:
        for path, image in ((root, tmp_path / "before"), (out, tmp_path / "out-before")):
            shutil.rmtree(path)
            shutil.copytree(image, path)
        died = killed_at(step, lambda: export(root, out))
        rows = read(out)
        assert len(rows) == len(set(rows)) and set(range(40)) <= set(rows), step
        seen.add(len(rows))
        counted = sum(file["rows"] for file in json.loads((out / "_manifest.json").read_text())["files"])
        if counted < len(rows):
            seen.add("between")
            with pytest.raises(CorruptionError, match="run the export again"):
                verify(out)
        fill(root, 80, 90, size=700)
        if step % 2:                                # killed once more, where the first one is ended
            killed_at(2, lambda: export(root, out))
            rows = read(out)
            assert len(rows) == len(set(rows)), step
        export(root, out)
        assert read(out) == list(range(90)) and verify(out, root) >= 3, step
        assert {name for name in os.listdir(out) if not name.startswith("part-")} == {"_manifest.json"}, step
        if not died:
            break
        step += 1
    assert step > 12 and {40, 80, "between"} <= seen


def test_a_manifest_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    module = importlib.import_module("rmq_store.spark.jobs.export")
    fill(tmp_path / "s", 0, 20)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_write_manifest", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            export(tmp_path / "s", tmp_path / "e")
    assert os.listdir(tmp_path / "e") == []
    fill(tmp_path / "s", 20, 25)
    assert export(tmp_path / "s", tmp_path / "e").rows == 25 and read(tmp_path / "e") == list(range(25))


def test_two_at_once_do_not_count_rows_twice(tmp_path, monkeypatch):
    """One that was planned before another one ended adds nothing."""
    from rmq_store.spark.jobs import run

    fill(tmp_path / "s", 0, 20)
    collect = run.collect

    def slow(*given):
        made = collect(*given)
        monkeypatch.setattr(run, "collect", collect)
        kept = os.listdir(tmp_path / "e")[0]
        os.rename(tmp_path / "e" / kept, tmp_path / kept)       # as on another machine, which did not see it in time
        export(tmp_path / "s", tmp_path / "e")
        os.rename(tmp_path / kept, tmp_path / "e" / kept)
        return made

    monkeypatch.setattr(run, "collect", slow)
    with pytest.raises(StoreStateError, match="another export"):
        export(tmp_path / "s", tmp_path / "e")
    assert read(tmp_path / "e") == list(range(20)) and verify(tmp_path / "e", tmp_path / "s") == 1


# ---- what proves an export

@pytest.fixture
def exported(tmp_path):
    fill(tmp_path / "s", 0, 400)
    export(tmp_path / "s", tmp_path / "e", split_size=3000)         # its files begin inside of records
    return tmp_path / "e"


def change(directory, change_rows, number=1):
    """Rewrites a part with other rows, and has the manifest say its bytes and checksum: as an export would that is wrong."""
    import pyarrow.parquet as pq

    from rmq_store.spark.jobs.exported import checksum

    manifest = json.loads((directory / "_manifest.json").read_text())
    file = manifest["files"][number]
    path = str(directory / file["file"])
    table = change_rows(pq.read_table(path))
    pq.write_table(table, path)
    file["bytes"], file["crc32c"] = checksum(path)
    (directory / "_manifest.json").write_text(json.dumps(manifest))


def other_bodies(table):
    import pyarrow as pa

    return table.set_column(table.schema.get_field_index("body"), "body", pa.array([b"other"] * table.num_rows, pa.binary()))


@pytest.mark.parametrize(("damage", "words"), [
    (lambda e: shutil.copy(sorted(e.glob("*.parquet"))[0], e / "part-s-again.parquet"), "the manifest does not list"),
    (lambda e: change(e, lambda t: t.slice(1)), "expected [0-9]+ rows, found"),
    (lambda e: change(e, lambda t: t.take([1, 0, *range(2, t.num_rows)])), "each once and in order"),
    (lambda e: change(e, lambda t: t.take([0, 0, *range(2, t.num_rows)])), "each once and in order"),
    (lambda e: sorted(e.glob("*.parquet"))[0].unlink(), "No such file")])
def test_rows_are_held_against_the_manifest(exported, damage, words):
    assert verify(exported) > 2
    damage(exported)
    with pytest.raises((CorruptionError, FileNotFoundError), match=words):
        verify(exported)


def forget(directory):
    """The manifest and the directory without one file."""
    manifest = json.loads((directory / "_manifest.json").read_text())
    os.unlink(directory / manifest["files"].pop(1)["file"])
    (directory / "_manifest.json").write_text(json.dumps(manifest))


def twice(directory):
    """A file for rows that another one has."""
    manifest = json.loads((directory / "_manifest.json").read_text())
    shutil.copy(directory / manifest["files"][1]["file"], directory / "part-twice.parquet")
    manifest["files"].append({**manifest["files"][1], "file": "part-twice.parquet"})
    (directory / "_manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(("damage", "words"), [(forget, r"a file with \d+ rows of s from"), (twice, "the next file"),
                                               (lambda e: change(e, other_bodies), "the rows that .* has in")])
def test_rows_are_held_against_the_store(exported, damage, words):
    store = exported.parent / "s"
    assert verify(exported, store) > 2
    damage(exported)
    with pytest.raises(CorruptionError, match=words):
        verify(exported, store)


def test_what_the_store_has_no_more_is_not_asked_for(exported):
    log = sorted((exported.parent / "s" / "commitlog").iterdir())
    log[0].unlink()
    assert verify(exported, exported.parent / "s") == len(list(exported.glob("*.parquet")))
