"""Exit codes: every line of rmq_store/cli/exits.py has a run that ends with its code, and no command names another code."""
import argparse
import ast
import io
import pathlib
import shutil
import sys
from types import SimpleNamespace

import pytest

from rmq_store import MessageStore
from rmq_store.cli import exits, main
from rmq_store.errors import StoreRefusesToLoad
from rmq_store.services.integrity.findings import Finding

ROOT = pathlib.Path(__file__).parents[2]
SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 50, "index_entries_max": 400}
NAMES = {name: getattr(exits, name) for name in ("FINE", "FINDINGS", "REFUSED", "CANNOT_OPEN", "CORRUPT")}
FIRST = "commitlog/00000000000000000000"
# The arguments of a command that ends with the code. A word that is a state of the fixture is a copy of that store.
RUNS = {
    ("demo", 0): "NEW --count 10", ("demo", 3): "good --count 10",
    ("put", 0): "good -t T", ("put", 1): "good -t T --delay-level 1 -o delay=refuse", ("put", 2): "gap -t T",
    ("put", 3): "good NEW -t T", ("put", 4): "wrong_size -t T",
    ("get", 0): "good -t T", ("get", 1): "good -t none", ("get", 2): "gap -t T", ("get", 3): "NEW -t T",
    ("get", 4): "wrong_size -t T",
    ("tail", 0): "good -t T -i 0 --for 0", ("tail", 2): "gap -t T --for 0", ("tail", 3): "NEW -t T --for 0",
    ("tail", 4): "wrong_size -t T --for 0",
    ("promote", 0): "followed", ("promote", 2): "followed_gap", ("promote", 3): "good", ("promote", 4): "followed_odd",
    ("table", 0): "good T", ("table", 1): "good none", ("table", 2): "gap T", ("table", 3): "NEW T",
    ("table", 4): "wrong_size T",
    ("query", 0): "good -t T -k k1", ("query", 1): "good -t T -k none", ("query", 2): "gap --offset 0",
    ("query", 3): "NEW --offset 0", ("query", 4): "wrong_size --offset 0",
    ("stat", 0): "good", ("stat", 1): "killed", ("stat", 2): "gap", ("stat", 3): "NEW", ("stat", 4): "wrong_size",
    ("offsets", 0): "show good", ("offsets", 1): "show good -g none", ("offsets", 2): "show gap", ("offsets", 3): "show NEW",
    ("offsets", 4): "show bad_json",
    ("namesrv", 3): "--listen 203.0.113.1:0",
    ("serve", 2): "gap --listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0",
    ("serve", 3): "good --listen 203.0.113.1:0", ("serve", 4): "wrong_size --listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0",
    ("follow", 2): "127.0.0.1:1 gap", ("follow", 3): f"127.0.0.1:1 good/{FIRST}", ("follow", 4): "127.0.0.1:1 wrong_size",
    ("topics", 0): "list good", ("topics", 1): "list good -t none", ("topics", 2): "list gap", ("topics", 3): "list NEW",
    ("topics", 4): "list wrong_size",
    ("groups", 0): "list good", ("groups", 1): "list good -g none", ("groups", 2): "list gap", ("groups", 3): "list NEW",
    ("groups", 4): "list bad_json",
    ("filters", 0): "list good", ("filters", 1): "list good -g none", ("filters", 2): "list gap", ("filters", 3): "list NEW",
    ("filters", 4): "list bad_json",
    ("transactions", 0): "good", ("transactions", 1): "good --commit none", ("transactions", 2): "gap",
    ("transactions", 3): "NEW", ("transactions", 4): "bad_json",
    ("timers", 0): "good", ("timers", 1): "good --recall djEgVCBiIDIgdQ==", ("timers", 2): "gap", ("timers", 3): "NEW",
    ("timers", 4): "wrong_size",
    ("clean", 0): "good --hours 0", ("clean", 2): "gap --hours 0", ("clean", 3): "NEW --hours 0",
    ("clean", 4): "wrong_size --hours 0",
    ("dump", 0): "good/checkpoint", ("dump", 1): f"damaged/{FIRST}", ("dump", 3): "NEW",
    ("doctor", 3): f"good/{FIRST}", ("advise", 3): f"good/{FIRST}", ("config", 0): "show good",
    ("config", 3): "show --config good/loop",
    ("bench", 0): "list", ("bench", 3): "put_sync --dir NEW --mib 1099511627776",
    ("verify", 0): "good", ("verify", 1): "wrong_size", ("verify", 3): "NEW", ("verify", 4): "damaged",
    ("scrub", 0): "good --rate 0", ("scrub", 1): "bad_manifest --rate 0", ("scrub", 3): "NEW", ("scrub", 4): "rotten --rate 0",
    ("repair", 0): "good", ("repair", 1): "damaged --dry-run", ("repair", 2): "gap", ("repair", 3): "NEW",
    ("copy", 0): "good NEW --profile test", ("copy", 1): "good NEW -t none --profile test",
    ("copy", 2): "gap NEW --profile test", ("copy", 3): "NEW other", ("copy", 4): "damaged NEW --profile test",
    ("export", 0): "good", ("export", 1): "good -t none", ("export", 2): "gap", ("export", 3): "NEW", ("export", 4): "damaged",
    ("import", 0): "NEW good/lines --profile test", ("import", 2): "gap good/lines",
    ("import", 3): "good NEW", ("import", 4): "wrong_size good/lines",
    ("backup", 0): "good NEW", ("backup", 2): "gap NEW", ("backup", 3): "NEW other", ("backup", 4): "damaged NEW",
    ("restore", 0): "good/backups", ("restore", 1): "good/none_left", ("restore", 3): "NEW",
    ("restore", 4): "good/bad_backups --check",
    ("readback", 0): "good", ("readback", 2): "gap", ("readback", 3): "NEW", ("readback", 4): "wrong_size",
}
# Where a case has its run if not here.
ELSEWHERE = {
    ("doctor", 0): __name__, ("doctor", 1): __name__, ("repair", 4): __name__, ("readback", 1): __name__,
    ("advise", 0): "tests/diagnosis/test_advise.py", ("bench", 1): "tests/cli/test_bench.py",
    ("namesrv", 0): "tests/namesrv/test_namesrv.py", ("serve", 0): "tests/broker/test_serving.py",
    ("follow", 0): "tests/replication/test_command.py",
    ("spark", 0): "tests/spark/test_cli.py", ("spark", 1): "tests/spark/test_cli.py", ("spark", 2): __name__,
    ("spark", 3): __name__, ("spark", 4): "tests/spark/test_snapshot.py",
}


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """A store for each kind of trouble. Nobody works on them but on a copy."""
    base = tmp_path_factory.mktemp("states")
    good = base / "good"
    third = 0
    with MessageStore.open(good, **SMALL) as store:
        for i in range(1500):
            last = store.put("T", b"message %d" % i, keys=f"k{i}")
            third = last.offset if i == 2 else third
        store.offsets.commit("G", "T", 0, 5)
        store.consumer_filters.register("G", "T", "a > 1")
        store.flush()
        store.wait_dispatched(10)
        while len(list(good.glob(".manifest/0*"))) < 2:
            store.scrub(make_manifests=True, bytes_per_s=None)
    (good / "lines").write_text('{"topic":"T","body":"x","body_as":"utf8"}\n')
    (good / "loop").symlink_to(good / "loop")
    for name in ("backups", "none_left", "bad_backups"):
        assert main.main(["backup", str(good), str(base / name)]) == 0
        (base / name).rename(good / name)
    shutil.rmtree(next(p for p in (good / "none_left").iterdir() if p.is_dir()))
    change(next((good / "bad_backups").glob(f"*/{FIRST}")), 500)
    for state in ("gap", "killed", "damaged", "wrong_size", "bad_json", "bad_manifest", "rotten"):
        shutil.copytree(good, base / state, symlinks=True)
    (base / "gap" / FIRST).rename(base / "gap" / "commitlog" / "00000000000010485760")
    (base / "killed" / "abort").write_bytes(b"")
    change(base / "damaged" / FIRST, third)
    queue = next((base / "wrong_size" / "consumequeue" / "T" / "0").iterdir())
    queue.write_bytes(queue.read_bytes()[:1003])
    for name in ("consumerOffset.json", "consumerOffset.json.bak", "consumerFilter.json"):
        (base / "bad_json" / "config" / name).write_bytes(b"{")
    change(base / "bad_manifest" / ".manifest" / "00000000000000000000", 40)
    change(base / "rotten" / FIRST, 40_000)
    for state, of in (("followed", "good"), ("followed_gap", "gap"), ("followed_odd", "good")):
        shutil.copytree(base / of, base / state, symlinks=True)
        (base / state / "config" / "replica.json").write_text(
            "{" if state == "followed_odd" else '{"brokerAddress":"","haMasterAddress":"","role":"slave","since":1}')
    return base


def change(path, place):
    data = bytearray(path.read_bytes())
    data[place:place + 8] = b"\xff" * 8
    path.write_bytes(data)


@pytest.mark.parametrize(("command", "code"), RUNS)
def test_each_code_has_its_run(command, code, states, tmp_path, rmqstore, monkeypatch):
    argv = []
    for word in RUNS[command, code].split():
        state, slash, rest = word.partition("/")
        if (states / state).exists() and word != "other":
            if not (tmp_path / state).exists():
                shutil.copytree(states / state, tmp_path / state, symlinks=True)
            word = f"{tmp_path / state}{slash}{rest}"
        argv.append(str(tmp_path / word) if word in ("NEW", "other") else word)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a line\n")))
    found, _, err = rmqstore(command, *argv)
    assert found == code, err


def test_every_line_has_a_run_and_every_command_has_lines():
    assert list(exits.EXITS) == list(main.COMMANDS)
    assert {(c, code) for c, codes in exits.EXITS.items() for code in codes} == {*RUNS, *ELSEWHERE}
    for (command, _), where in ELSEWHERE.items():
        if where != __name__:
            assert f'"{command}"' in (ROOT / where).read_text()


@pytest.mark.parametrize("command", main.COMMANDS)
def test_a_command_names_no_code_that_the_table_lacks(command):
    path = ROOT / "rmq_store" / "cli" / f"{main.MODULES.get(command, command)}.py"
    used = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert {NAMES[name] for name in used & NAMES.keys()} <= exits.EXITS[command].keys()


@pytest.mark.parametrize("command", [None, *main.COMMANDS])
def test_help_prints_the_table(command, rmqstore, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    code, out, _ = rmqstore(*([command] if command else []), "--help")
    said = exits.MEANINGS if command is None else exits.EXITS[command] | {c: exits.MEANINGS[c] for c in exits.EVERY}
    assert code == 0 and out.endswith("exit codes:\n" + "".join(f"  {c:<4} {when}\n" for c, when in said.items()))


def test_doctor(rmqstore, monkeypatch, tmp_path):
    """What it finds depends on the machine."""
    from rmq_store.upkeep.doctor.diagnosis import Verdict

    for level, code in (("note", 0), ("finding", 1)):
        items = [Verdict(level, "s", "f", "c", "x")]
        found = SimpleNamespace(items=items, findings=items if code else [], healthy=not code)
        monkeypatch.setattr("rmq_store.cli.doctor.doctor", lambda *_, found=found, **__: found)
        assert rmqstore("doctor", tmp_path)[0] == code


def test_repair_that_leaves_damage(rmqstore, monkeypatch, tmp_path):
    for severity, code in (("corrupt", 4), ("finding", 1)):
        left = SimpleNamespace(steps=[], findings=[], left=[Finding("log_hole", severity, "f")])
        monkeypatch.setattr("rmq_store.cli.repair.repair", lambda *_, left=left, **__: left)
        assert rmqstore("repair", tmp_path)[0] == code


def test_readback_with_a_problem(rmqstore, monkeypatch, states):
    monkeypatch.setattr("rmq_store.cli.readback._Readback.all", lambda self: setattr(self, "problems", 1))
    assert rmqstore("readback", states / "good")[0] == 1


def test_an_error_of_a_store_ends_a_spark_job(rmqstore, monkeypatch):
    """As the job raises it: Spark itself is not started."""
    for error, code in ((StoreRefusesToLoad("f", 0, 1, 2), 2), (FileNotFoundError(2, "none", "f"), 3)):
        def run(args, out, error=error):
            raise error

        monkeypatch.setattr("rmq_store.cli.spark.run", run)
        assert rmqstore("spark", "statistics", "x")[0] == code


def test_every_argument_has_a_help_text():
    def without(parser, name):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, below in action.choices.items():
                    yield from without(below, f"{name} {word}")
            elif not action.help:
                yield name, action.option_strings or action.dest

    assert list(without(main.build_parser(), "rmqstore")) == []
