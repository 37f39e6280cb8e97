"""What `rmqstore serve`, `namesrv`, `follow` and `promote` refuse: the line names the option, the value and the cure, and
nothing is made before it."""
import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading

import pytest

from rmq_store import AsyncBroker, AsyncMessageStore, Broker, MessageStore, errors, promote
from rmq_store.cli.main import main
from rmq_store.remoting.client import advertise_text, listen_address, servers

LOOPBACK = ("--profile", "test", "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0")


def refused(capsys, *argv, code=64):
    assert main([str(part) for part in argv]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(("more", "words"), [
    (("-o", "listen=127.0.0.1:0"), "-o listen: that is no option, but an argument of the command: give --listen HOST:PORT"),
    (("-o", "advertise=x"), "give --advertise HOST[:PORT]"), (("-o", "namesrv=x:1"), "give --namesrv HOST:PORT"),
    (("-o", "metrics_listen=x"), "give --metrics-listen HOST:PORT"), (("-o", "path=x"), "give the directory"),
    (("-o", "namesrv_listen=x"), "give --namesrv-listen HOST:PORT"),
    (("-o", "_environment=x"), "option _environment is unknown"), (("-o", "cls=x"), "option cls is unknown"),
    (("-o", "profile=dev"), "profile is given twice"), (("-o", "readonly=true"), "option readonly is true"),
    (("-o", "brokerId=1", "-o", "brokerId=2"), "-o brokerId is given twice"),
    (("-o", "autoCreateTopicEnable"), "expected NAME=VALUE"),
    (("-o", "brokerRole=SLAVE"), "option brokerId is 0, which is a master's"),
    (("-o", "brokerRole=SLAVE", "-o", "brokerId=1"), "no option names its master: give haMasterAddress=HOST:PORT"),
    (("-o", "brokerRole=MASTER"), "expected ASYNC_MASTER or SYNC_MASTER or SLAVE"),
    (("--advertise", "a b:x"), "advertise is 'a b:x': give HOST or HOST:PORT"),
    (("-o", "brokerIP1=a/b"), "option brokerIP1 is 'a/b': give HOST or HOST:PORT"),
    (("--metrics-listen", "127.0.0.1"), "metrics_listen is '127.0.0.1': give HOST:PORT, as in 127.0.0.1:9104")])
def test_serve_refuses_before_it_makes_a_store(tmp_path, capsys, more, words):
    assert words in refused(capsys, "serve", tmp_path / "s", *LOOPBACK, *more)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("option", "words"), [
    ("listen=127.0.0.1:0", "that is no option, but an argument of the command: give --listen HOST:PORT"),
    ("brokerName=b", "option brokerName is none of a name server: give tls.server.mode"),
    ("tls.enable=true", "option tls.enable is none of a name server"),
    ("tls.server.mode=on", "option tls.server.mode is 'on': give disabled, permissive, enforcing"),
    ("tls.server.mode", "expected NAME=VALUE")])
def test_a_name_server_refuses_options(capsys, option, words):
    assert words in refused(capsys, "namesrv", "--listen", "127.0.0.1:0", "-o", option)


def test_an_address_that_is_taken_is_named_with_its_option(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for option, argument in (("listen", "--listen"), ("namesrv_listen", "--namesrv-listen"),
                                 ("metrics_listen", "--metrics-listen")):
            said = refused(capsys, "serve", tmp_path / "s", *LOOPBACK, argument, address, code=3)
            assert f"cannot listen on {address} ({option}): Address already in use; another process listens there" in said
        assert f"cannot listen on {address} (listen): " in refused(capsys, "namesrv", "--listen", address, code=3)
        with pytest.raises(OSError, match=r"\(ha_listen\): Address already in use"):
            MessageStore.open(tmp_path / "m", profile="test", ha_listen=address)


def test_a_ready_file_in_no_directory_is_refused_before_a_store_is_made(tmp_path, capsys):
    ready = tmp_path / "no" / "ready.json"
    for command in (("serve", tmp_path / "s", *LOOPBACK), ("follow", "127.0.0.1:1", tmp_path / "s", "--profile", "test"),
                    ("namesrv", "--listen", "127.0.0.1:0")):
        said = refused(capsys, *command, "--ready-file", ready, code=3)
        assert "the directory of the ready file does not exist: make it first" in said and str(ready) in said
        assert "is a directory" in refused(capsys, *command, "--ready-file", tmp_path, code=3)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("text", "found"), [
    ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:99", ("::1", 99)), ("localhost:1", ("localhost", 1)), ("::1", None),
    ("::1:10911", None), ("[x]:1", None), ("*:1", None), ("a b:1", None), (":1", None), ("x:65536", None), ("x:-1", None),
    ("", None)])
def test_addresses_to_listen_on(text, found):
    if found is not None:
        assert listen_address(text, "listen") == found
    else:
        with pytest.raises(errors.ConfigError, match=r"give HOST:PORT, as in 127.0.0.1:10911 or \[::1\]:10911"):
            listen_address(text, "listen")


def test_addresses_of_name_servers_and_for_routes():
    assert servers("a:1; [::1]:2;", "namesrv") == [("a", 1), ("::1", 2)]
    for wrong in ("127.0.0.1", "a:0", "a:1;b"):
        with pytest.raises(errors.ConfigError, match="of each name server, as in"):
            servers(wrong, "namesrv")
    assert [advertise_text(text, "x") for text in ("broker.example", "10.0.0.7:99", "::1", "[::1]", "[::1]:5")] == [
        "broker.example", "10.0.0.7:99", "[::1]", "[::1]", "[::1]:5"]


READY = ("--listen", "127.0.0.1:0", "--ready-file")


def namesrv(ready):
    return subprocess.Popen([sys.executable, "-m", "rmq_store", "namesrv", *READY, ready], stdout=subprocess.PIPE, text=True)


def test_the_ready_file_of_a_process_that_runs_is_left_alone(tmp_path, capsys):
    ready = tmp_path / "ready.json"
    with namesrv(ready) as process:
        process.stdout.readline()
        before = json.loads(ready.read_text())
        assert before["pid"] == process.pid
        taken = before["namesrv"]
        refused(capsys, "serve", tmp_path / "s", *LOOPBACK, "--namesrv-listen", taken, "--ready-file", ready, code=3)
        refused(capsys, "namesrv", "--listen", taken, "--ready-file", ready, code=3)
        assert json.loads(ready.read_text()) == before
        with namesrv(ready) as other:           # it serves somewhere else, and the file is its own from then on
            other.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0 and json.loads(ready.read_text())["pid"] == other.pid
            other.send_signal(signal.SIGTERM)
            assert other.wait(60) == 0 and not ready.exists()


def test_a_ready_file_that_was_left_behind_goes_before_anything_begins(tmp_path, capsys):
    ready = tmp_path / "ready.json"
    with namesrv(ready) as process:
        process.stdout.readline()
        process.kill()
        process.wait()
    assert ready.exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(capsys, "namesrv", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--ready-file", ready, code=3)
    assert not ready.exists()
    ready.touch()                               # as mktemp makes it
    with namesrv(ready) as process:
        process.stdout.readline()
        assert json.loads(ready.read_text())["pid"] == process.pid
        process.send_signal(signal.SIGINT)
    assert not ready.exists()


@pytest.mark.parametrize("content", ["notes", "[1]", "\x00", '{"name": "x"}', "[" * 4000])
def test_a_file_that_is_no_ready_file_is_not_replaced(tmp_path, capsys, content):
    ready = tmp_path / "precious.txt"
    ready.write_text(content)
    for command in (("serve", tmp_path / "s", *LOOPBACK), ("follow", "127.0.0.1:1", tmp_path / "s", "--profile", "test"),
                    ("namesrv", "--listen", "127.0.0.1:0")):
        assert "this is no ready file" in refused(capsys, *command, "--ready-file", ready)
    assert ready.read_text() == content and not (tmp_path / "s").exists()


def test_namesrvaddr_of_a_file_is_as_namesrv(tmp_path):
    """With namesrvAddr the process had a name server of its own as well, and could take its port from the real one."""
    (tmp_path / "broker.conf").write_text("namesrvAddr=127.0.0.1:1\nlistenPort=0\nhaListenPort=0\n")
    (tmp_path / "ready.json").write_text('{"listen": "of an earlier run"}')
    command = [sys.executable, "-m", "rmq_store", "serve", str(tmp_path / "s"), "--profile", "test", "-c",
               str(tmp_path / "broker.conf"), "--ready-file", str(tmp_path / "ready.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        said = process.stdout.readline()
        ready = json.loads((tmp_path / "ready.json").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert ready["namesrv"] is None and ready["metrics"] is None
    assert said == f"broker listens on {ready['listen']}, registers with 127.0.0.1:1, slaves connect to {ready['ha']}\n"


def test_a_toml_file_has_options_of_the_broker_too(tmp_path):
    """In snake_case, as those of the store: it was refused as unknown, and the camel case was meant to be proposed."""
    (tmp_path / "c.toml").write_text('broker_name = "b"\ndefault_topic_queue_nums = 3\nflush_mode = "sync"\n')
    with Broker.open(tmp_path / "s", profile="test", config=tmp_path / "c.toml") as broker:
        options = broker._core.options
        assert (options["brokerName"], options["defaultTopicQueueNums"], broker.store.options.flush_mode) == ("b", 3, "sync")
    (tmp_path / "c.toml").write_text('broker_nam = "b"\n')
    with pytest.raises(errors.ConfigError, match="did you mean"):
        Broker.open(tmp_path / "s", profile="test", config=tmp_path / "c.toml")


def test_security_that_is_configured_and_off_is_said(tmp_path, caplog):
    for more, words in (({"aclFile": "accounts.yml"}, "aclEnable is false: requests need no signature"),
                        ({"tls.server.certPath": "server.pem"}, "tls.server.mode is disabled: connections are plain")):
        Broker.open(tmp_path / "s", profile="test", **more).close()
        assert words in caplog.messages[-1]


def test_follow_takes_the_role_that_it_has_and_no_other(tmp_path, capsys):
    follow = ("follow", "127.0.0.1", tmp_path / "s", "--profile", "test")
    assert "ha_master is '127.0.0.1'" in refused(capsys, *follow, "-o", "brokerRole=SLAVE")
    assert "`rmqstore follow` makes a slave" in refused(capsys, *follow, "-o", "role=master")
    for name in ("ha_master", "haMasterAddress"):
        assert "the command line names the master" in refused(capsys, *follow, "-o", f"{name}=127.0.0.1:2")
    assert "nosuch.conf does not exist" in refused(capsys, *follow, "-c", "nosuch.conf")
    assert not (tmp_path / "s").exists()


def test_promote_takes_rocketmqs_names_and_says_when_there_is_no_store(tmp_path, capsys):
    MessageStore.open(tmp_path / "s", profile="test", role="slave", ha_master="127.0.0.1:1").close()
    assert main(["promote", str(tmp_path / "s"), "--to", "SYNC_MASTER"]) == 0
    assert "now it is a master (SYNC_MASTER)" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    for force in (False, True):
        with pytest.raises(FileNotFoundError, match="not a message store"):
            promote(tmp_path / "empty", force=force)
    assert list((tmp_path / "empty").iterdir()) == []


async def _cancelled(path, monkeypatch):
    begun, may = threading.Event(), threading.Event()
    real = Broker.open

    def slow(*arguments, **options):
        begun.set()
        may.wait(60)
        return real(*arguments, **options)

    monkeypatch.setattr(Broker, "open", slow)
    task = asyncio.create_task(AsyncBroker.open(path, profile="test"))
    while not begun.is_set():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    closed = threading.Event()
    close = Broker.close
    monkeypatch.setattr(Broker, "close", lambda broker: (close(broker), closed.set())[0])
    may.set()
    assert closed.wait(60)
    await AsyncMessageStore(MessageStore.open(path, profile="test")).close()      # nobody holds it


def test_an_open_that_is_cancelled_leaves_no_broker(tmp_path, monkeypatch):
    """It went on serving, and held the store, with nobody to close it."""
    asyncio.run(_cancelled(tmp_path / "s", monkeypatch))


async def _attributes(path):
    async with await AsyncBroker.open(path, profile="test", metrics_listen="127.0.0.1:0") as broker:
        return broker.metrics_address, broker.acl_enabled, broker.figures().look().connections


def test_an_async_broker_has_what_a_broker_has(tmp_path):
    address, acl, connections = asyncio.run(_attributes(tmp_path / "s"))
    assert address.startswith("127.0.0.1:") and not acl and connections == 0
    public = {name for name in dir(Broker) if not name.startswith("_")} - {"fast_address"}
    assert public <= {name for name in dir(AsyncBroker) if not name.startswith("_")} | {"store"}
