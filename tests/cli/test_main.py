"""The frame of the command line: usage errors, exit codes, options, pipes."""
import argparse
import os
import signal
import subprocess
import sys

import pytest

from rmq_store import errors
from rmq_store.cli import main
from rmq_store.cli.common import keywords, moment, printable
from rmq_store.cli.output import Progress, size_text


def test_usage_errors_are_64(rmqstore):
    assert rmqstore()[0] == 64
    assert rmqstore("bogus")[0] == 64
    assert rmqstore("get")[0] == 64
    assert rmqstore("get", "/x", "-t", "T", "-c", "0")[0] == 64
    assert rmqstore("query", "/x", "-k", "a", "-i", "b")[0] == 64


@pytest.mark.parametrize(("error", "code"), [
    (errors.ConfigError("x"), 64), (errors.MessageIllegal("x"), 64), (errors.PropertiesSizeExceeded("x"), 64),
    (errors.StoreRefusesToLoad("f", 0, 1, 2), 2), (errors.CorruptionError("f", 0, 1, 2), 4), (errors.StoreLocked("f", 1), 3),
    (errors.BackendUnavailable("a", "b", "c"), 3), (FileNotFoundError(2, "none", "f"), 3), (errors.SyncFailed(5, "sync"), 3),
    (errors.OsPageCacheBusy("x"), 1)])
def test_exit_codes(error, code):
    assert main.exit_code(error) == code


def test_a_path_without_a_store_is_not_made_into_one(tmp_path, rmqstore):
    for command in (["get", "-t", "T"], ["query", "-t", "T", "-k", "k"], ["stat"], ["readback"]):
        code, _, err = rmqstore(command[0], tmp_path / "none", *command[1:])
        assert code == 3 and "not a message store" in err
    assert not list(tmp_path.iterdir())


def test_options_on_the_command_line():
    def given(options, profile=None):
        return keywords(argparse.Namespace(options=options, profile=profile, config=None))

    assert given(["a=1", "b = c=d"], "durable") == {"a": "1", "b": " c=d", "profile": "durable"}
    for wrong in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(errors.ConfigError):
            given(wrong)
    with pytest.raises(errors.ConfigError, match="twice"):
        given(["profile=x"], "durable")


def test_times():
    assert moment("1700000000000") == 1_700_000_000_000
    assert moment("2024-05-01T12:00:00+00:00") == 1_714_564_800_000
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        moment("noon")


def test_text_cannot_move_the_cursor():
    assert printable("a\x1b[2J\n\u00e9") == "a\\x1b[2J\\n\u00e9"
    assert size_text(100) == "100 bytes" and size_text(1536) == "1.5 KiB" and size_text(5 << 30) == "5.0 GiB"


def test_progress_only_on_a_terminal(tmp_path):
    with open(tmp_path / "out", "w+") as stream:
        with Progress("x", 10, "things", stream) as progress:
            progress._last -= 1
            progress.at(5)
        assert stream.tell() == 0
    primary, replica = os.openpty()
    with open(replica, "w") as stream, Progress("x", 10, "things", stream) as progress:
        progress._last -= 1
        progress.at(5)
    assert b"x  5 of 10 (50%) things" in os.read(primary, 1000)
    os.close(primary)


def test_a_closed_pipe_ends_it_quietly(golden):
    file = golden("v4-plain") / "commitlog" / ("0" * 20)
    done = subprocess.run(f'{sys.executable} -m rmq_store dump "{file}" "{file}" "{file}" --body hex | head -1',
                          shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("== ") and done.stderr == ""


def test_interrupt_is_130(tmp_path):
    child = subprocess.Popen([sys.executable, "-m", "rmq_store", "put", str(tmp_path / "store"), "-t", "T", "--json",
                              "-o", "segment_size_bytes=1048576", "-o", "index_enabled=false"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdin.write(b"one\ntwo\n" * 2000)        # more than its buffers hold; the input stays open
    child.stdin.flush()
    first = child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert first.startswith(b'{"status":"PUT_OK"'), err
    assert child.returncode == 130, err
    assert b"Traceback" not in err
    assert not (tmp_path / "store" / "abort").exists()


def test_help_keeps_names_as_they_are(rmqstore):
    """"json", "toml" and "apache spark"."""
    for command, name in (("export", "JSON"), ("config", "TOML"), ("spark", "Apache Spark")):
        assert name in rmqstore(command, "--help")[1].split("\n\n")[1]


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["put", "--help"]])
def test_help_that_cannot_be_written(words):
    """Python complained at exit, with code 120."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "rmq_store", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (3, "rmqstore: No space left on device: standard output\n")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "rmq_store", *words], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
