"""Prometheus metrics of a broker over HTTP: those of its store, and its connections, held requests and requests by code.

Threads of their own, one for each request and at most REQUESTS_MAX; a peer that is silent is cut off after TIMEOUT_S.
"""
import http.server
import logging
import threading
from typing import Any

from rmq_store.base.io.threads import start_thread
from rmq_store.broker.core import Core
from rmq_store.errors import RmqStoreError
from rmq_store.remoting.loop import address_text

__all__ = ["Exposing"]

REQUESTS_MAX = 16
TIMEOUT_S = 10
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    core: Core

    def __init__(self, *arguments: Any) -> None:
        self._room = threading.Semaphore(REQUESTS_MAX)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that has gone."""


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        """Answers /metrics."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        try:
            page = _page(self.server.core).encode()
        except RmqStoreError as error:
            self.send_error(503, explain=str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *arguments: Any) -> None:
        logging.getLogger("rmq_store.broker").debug(format, *arguments)


class Exposing:
    """Serves /metrics at `address` until `stop`."""

    def __init__(self, core: Core, listen: tuple[str, int]) -> None:
        """Raises OSError, and ModuleNotFoundError without prometheus_client."""
        import rmq_store.metrics  # noqa: F401  an extra, which is missed here and not at the first request

        self._server = _Server(listen, _Handler)
        self._server.core = core
        host, port = self._server.server_address[:2]
        self.address = address_text((str(host), port))
        self._thread = start_thread(self._server.serve_forever, "rmq-broker-metrics")

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _page(core: Core) -> str:
    from rmq_store.metrics import text  # see Exposing

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
