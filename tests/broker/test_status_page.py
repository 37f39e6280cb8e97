"""What a broker tells over HTTP and by --watch: contents, escapes, bounds; the page in a real browser."""
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from rmq_store import Broker
from rmq_store.broker import exposing, figures
from rmq_store.broker.page import SCRIPT, STYLE
from rmq_store.cli.output import Output
from rmq_store.cli.serve import _watch
from tests.broker.browser import Browser
from tests.broker.peer import Peer
from tests.soon import until

EVIL = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture
def shown(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", metrics_listen="127.0.0.1:0", waitTimeMillsInSendQueue=60_000) as broker:
        yield broker


def ask(broker, path="/", method="GET", **headers):
    host, port = broker.metrics_address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def fresh(broker):
    """The page as it is now, not the one of a second ago."""
    broker._exposing._server._page_at = float("-inf")
    return ask(broker)[1]


def fill(broker, peer):
    """Two topics, a group that has read a part, one that holds a pull, and names and bodies that are no text for a page."""
    for number in range(5):
        peer.put("Orders", b"order %d" % number, properties={"TAGS": "paid", "KEYS": EVIL})
    peer.put("Blobs", bytes(range(256)))
    peer.put("Orders", EVIL.encode())
    broker.store.wait_dispatched(10)
    peer.beat(consumers={"Readers": {"Orders": "*"}, EVIL: {"Orders": "*"}})
    peer.ask(15, consumerGroup="Readers", topic="Orders", queueId=0, commitOffset=2)
    peer.ask_pull(group="Readers", topic="Orders", offset=6)
    until(lambda: broker._core.held_count == 1)


def test_the_page_shows_the_broker(shown):
    with Peer(shown.address) as peer:
        fill(shown, peer)
        page = fresh(shown)
    assert "<h1>broker-a in DefaultCluster</h1>" in page
    for text in ("order 4", "Orders</summary>", "Blobs</summary>", "Readers</summary>", "paid", "Flush to the device",
                 "Pause of a put"):
        assert text in page, text
    row = re.search(r'id="g:Readers">.*?</details></td><td class=n>(\d+)</td><td>([^<]*)</td><td class=n>(\d+)', page)
    assert row.groups() == ("1", "Orders", "4")
    assert "00 01 02 03" in page
    assert "<img" not in page and page.count("&lt;img src=x onerror=alert(1)&gt;") >= 6


def test_nothing_of_elsewhere(shown):
    status, page, headers = ask(shown)
    assert (status, headers["Content-Type"], headers["Server"]) == (200, "text/html; charset=utf-8", "rmq_store")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    without = page.replace(SCRIPT, "").replace(STYLE, "")
    assert not re.search(r"(?:src|href|action|srcset)=(?!\"data:,\")|url\(|@import|style=", without)
    assert ask(shown, method="HEAD")[:2] == (200, "")
    assert ask(shown, method="POST")[0] == 501
    assert ask(shown, "/other")[0] == 404
    assert ask(shown, "/?x=1")[0] == 200


def test_no_page_of_an_enemy_reads_it(shown):
    """A browser that an enemy's name server led here names the enemy's host."""
    assert ask(shown, Host="enemy.example")[0] == 421
    assert ask(shown, "/metrics", Host="enemy.example:80")[0] == 421
    for host in ("localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:9"):
        assert ask(shown, Host=host)[0] == 200


def test_slow_and_many_peers_hold_nothing(shown, monkeypatch):
    monkeypatch.setattr(exposing, "DEADLINE_S", 0.5)
    host, port = shown.metrics_address.rsplit(":", 1)
    peers = [socket.create_connection((host, int(port)), timeout=30) for _ in range(exposing.REQUESTS_MAX + 8)]
    try:
        for peer in peers:
            peer.sendall(b"GET / HT")
        for peer in peers:                      # all are closed, without an answer; those above the limit at once
            try:
                assert peer.recv(100) == b""
            except ConnectionResetError:
                pass
    finally:
        for peer in peers:
            peer.close()
    monkeypatch.undo()
    until(lambda: not shown._exposing._server._peers)
    assert ask(shown)[0] == 200


def test_without_prometheus_the_page_is_there(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "rmq_store.metrics", None)
    assert ask(shown)[0] == 200
    assert ask(shown, "/metrics")[0] == 503


def test_figures_are_of_what_happened_since_the_last_look(shown):
    found = shown.figures()
    with Peer(shown.address) as peer:
        fill(shown, peer)
        shown.store.flush()
        moment = found.look()
        assert moment.puts * moment.seconds == pytest.approx(7)
        assert moment.put_bytes > 0 and moment.held == 1 and moment.connections == 1 and moment.behind["Readers"] == 4
        assert moment.flushes > 0 and moment.flush_p99 > 0
        assert "behind 4 (Readers 4)" in figures.line(moment)
        assert figures.line(found.look()).startswith("in 0/s 0 B/s  out 0/s")
    many = moment._replace(behind={f"g{n}": n for n in range(1, 7)} | {"a\x1b[2J": 50})
    assert r"(a\x1b[2J 50, g6 6, g5 5, 4 more)" in figures.line(many)


class Ending:
    """An event that is set when it was waited for three times."""

    waits = 0

    def wait(self, seconds):
        assert seconds == 1
        self.waits += 1
        return self.waits > 2


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_prints_lines(shown, as_json):
    stream = io.StringIO()
    _watch(shown, Output(as_json, stream), Ending())
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    if as_json:
        said = json.loads(lines[1])
        assert said["kind"] == "moment" and said["behind"] == {} and said["puts"] == 0
    else:
        assert re.fullmatch(r"in 0/s 0 B/s  out 0/s 0 B/s  connections 0  held 0  behind 0  (no flush|flush p99 .*)", lines[1])


@pytest.mark.slow       # two processes, for two seconds
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_command_prints_a_line_a_second(tmp_path, form):
    process = subprocess.Popen([sys.executable, "-m", "rmq_store", "serve", str(tmp_path / "s"), "--profile", "test", "--watch",
                                "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                                *(["--json"] if form == "json" else [])], stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ))
    try:
        said = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    if form == "json":
        assert json.loads(said[0])["metrics"].startswith("127.0.0.1:")
        assert json.loads(said[1])["kind"] == "moment" and json.loads(said[1])["behind"] == {}
    else:
        assert re.fullmatch(r"in 0/s 0 B/s  out 0/s 0 B/s  connections 0  held 0  behind 0  (no flush|flush p99 .*)\n", said[1])


@pytest.mark.slow       # a browser
def test_in_a_browser(shown, tmp_path):
    """Its scripts run and throw nothing, it renews itself, what was open stays open, and it has two colour schemes."""
    with Browser(tmp_path / "profile") as browser, Peer(shown.address) as peer:
        fill(shown, peer)
        browser.open(f"http://{shown.metrics_address}/")
        text = browser.value("document.body.innerText")
        for wanted in ("broker-a in DefaultCluster", "messages in", "Orders", "Readers", "order 4", "Flush to the device",
                       EVIL):
            assert wanted in text, wanted
        assert browser.value("document.querySelectorAll('img').length") == 0
        assert browser.value("document.querySelectorAll('figure svg').length") == 6
        browser.value("document.getElementById('q:Orders').open = true")
        peer.put("Orders", b"the next")
        shown.store.wait_dispatched(10)
        until(lambda: "the next" in browser.value("document.body.innerText"))
        assert browser.value("document.getElementById('q:Orders').open") is True
        colours = []
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            colours.append(browser.value("getComputedStyle(document.body).backgroundColor"))
        assert colours == ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]
        assert browser.value("performance.getEntriesByType('resource').every(r => r.name.startsWith(location.origin))")
        assert browser.problems == []
