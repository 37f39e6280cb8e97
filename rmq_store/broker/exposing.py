"""What a broker tells over HTTP: Prometheus metrics at /metrics, and a status page at /.

Threads of their own: one listens, and looks at the figures once a second; one serves each request, at most REQUESTS_MAX. A peer
that has not sent its request and read its answer DEADLINE_S after it connected is cut off.
"""
import http.server
import ipaddress
import logging
import socket
import socketserver
import threading
import time
from typing import Any

from rmq_store.base.io.threads import start_thread
from rmq_store.broker.core import Core
from rmq_store.broker.figures import Figures
from rmq_store.broker.page import POLICY, page
from rmq_store.errors import RmqStoreError
from rmq_store.remoting.client import address_text

__all__ = ["Exposing"]

REQUESTS_MAX = 16
DEADLINE_S = 15.0
POLL_S = 0.1            # of the thread that listens: how long `stop` waits for it
PAGE_KEPT_S = 1.0       # many viewers get one page
TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
           "Cache-Control": "no-store"}
log = logging.getLogger("rmq_store.broker")


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False      # `stop` cuts off who is left
    core: Core
    figures: Figures

    def __init__(self, listen: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self.local = _is_loopback(listen[0])
        self._room = threading.Semaphore(REQUESTS_MAX)
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._peers: dict[Any, float] = {}      # socket -> when it is cut off
        self._look_at = 0.0
        self._page, self._page_at = "", -PAGE_KEPT_S
        super().__init__(listen, _Handler)

    def server_bind(self) -> None:
        """Without a search for the name of the host, which HTTPServer begins."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def service_actions(self) -> None:
        """Every POLL_S, in the thread that listens."""
        now = time.monotonic()
        self._cut_off(now)
        if now >= self._look_at:
            self._look_at = now + 1.0
            try:
                self.figures.look()
            except RmqStoreError as error:      # the store closes
                log.debug("no figures: %s", error)
            except Exception as error:          # the page lacks a second; it must not end
                log.error("looking at the figures of the broker failed: %r", error)

    def _cut_off(self, now: float) -> None:
        with self._lock:
            late = [request for request, deadline in self._peers.items() if deadline <= now]
            for request in late:
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:         # it has gone
                    pass

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._lock:
            self._peers[request] = time.monotonic() + DEADLINE_S
        try:
            super().process_request(request, client_address)
        except BaseException:           # no thread could be made
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:        # the peer has gone, or was cut off
            log.debug("a request of %s ended: %s", client_address, error)
        except Exception:
            log.exception("a request of %s failed", client_address)
        finally:
            self._leave(request)
            self.shutdown_request(request)

    def _leave(self, request: Any) -> None:
        with self._lock:
            self._peers.pop(request, None)
        self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that has gone, or a process without room for a thread."""

    def status(self) -> str:
        with self._making:
            if time.monotonic() - self._page_at >= PAGE_KEPT_S:
                self._page = page(self.core, self.figures, contents=self.core.access is None)
                self._page_at = time.monotonic()
            return self._page

    def close_all(self) -> None:
        self._cut_off(float("inf"))


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = DEADLINE_S
    server: _Server

    def version_string(self) -> str:
        """Without the version of Python."""
        return "rmq_store"

    def do_GET(self) -> None:
        """Answers / and /metrics."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        if self.server.local and not _names_loopback(self.headers.get("Host")):
            self.send_error(421, explain="This address is for programs of this machine: ask by its IP address or by localhost.")
            return
        if path not in ("/", "/metrics"):
            self.send_error(404)
            return
        try:
            data = (self.server.status() if path == "/" else _metrics(self.server.core)).encode(errors="replace")
        except (RmqStoreError, ModuleNotFoundError) as error:
            self.send_error(503, explain=str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8" if path == "/" else TYPE)
        self.send_header("Content-Length", str(len(data)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names_loopback(host: str | None) -> bool:
    """Whether a request names this machine so that no name server of an enemy can have led a browser here."""
    if host is None:
        return True
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    try:
        ipaddress.ip_address(name.strip("[]"))
        return True
    except ValueError:
        return name.lower() == "localhost"


class Exposing:
    """Serves at `address` until `stop`."""

    def __init__(self, core: Core, listen: tuple[str, int]) -> None:
        """Raises OSError."""
        self._server = _Server(listen)
        self._server.core, self._server.figures = core, Figures(core)
        host, port = self._server.server_address[:2]
        self.address = address_text((str(host), port))
        self._thread = start_thread(lambda: self._server.serve_forever(POLL_S), "rmq-broker-metrics")

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.close_all()
        self._thread.join()


def _metrics(core: Core) -> str:
    """Raises ModuleNotFoundError without prometheus_client, which is an extra."""
    from rmq_store.metrics import text

    producers, consumers = core.clients.counts()
    lines = [text(core.store)]
    for name, what, rows in (
            ("rocketmq_producer_connections", "Connections of producers, by group", producers),
            ("rocketmq_consumer_connections", "Connections of consumers, by group", consumers)):
        lines += [f"# HELP {name} {what}", f"# TYPE {name} gauge"]
        lines += [f'{name}{{group="{_escaped(group)}"}} {count}' for group, count in sorted(rows.items())]
    held = "rmq_store_broker_held_pulls"
    lines += [f"# HELP {held} Pulls that wait for a message", f"# TYPE {held} gauge", f"{held} {core.held_count}"]
    requests = "rmq_store_broker_requests_total"
    lines += [f"# HELP {requests} Requests, by request code", f"# TYPE {requests} counter"]
    lines += [f'{requests}{{code="{code}"}} {count}' for code, count in sorted(core.processors.counts().items())]
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
