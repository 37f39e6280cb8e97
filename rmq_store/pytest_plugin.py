"""Fixtures for pytest: small stores and brokers in the directory of a test. They are closed at its end, and the test fails if
one failed.

pytest loads this in every run where rmq_store is installed, so it imports the store only when a test uses a fixture.
Docs: docs/testing.md.
"""
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from rmq_store.broker.serving import Broker
    from rmq_store.store import MessageStore

__all__ = ["BrokerFactory", "StoreFactory", "rocketmq_broker", "rocketmq_broker_factory", "rocketmq_store",
           "rocketmq_store_factory"]


class _Closes(Protocol):
    def close(self) -> object: ...


T = TypeVar("T", bound=_Closes)

_MARKERS = ("rocketmq_store(**options): options of the store that the fixture of that name opens (docs/options.md)",
            "rocketmq_broker(**options): options of the broker that the fixture of that name opens (docs/broker.md)")


class _Opened(Generic[T]):
    """What a factory has opened. errors: see the factories."""

    def __init__(self, directory: Path, errors: list[str]) -> None:
        self.directory = directory
        self.errors = errors
        self._options: dict[str, dict[str, Any]] = {}       # by path: as it was opened last
        self._opened: list[T] = []

    def close(self) -> None:
        """Closes all that is open, the newest first, then raises the first error, if any."""
        problems: list[BaseException] = []
        while self._opened:
            try:
                self._opened.pop().close()
            except Exception as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _keep(self, path: str, options: dict[str, Any], opened: T) -> T:
        self._options[path] = options
        self._opened.append(opened)
        return opened

    def _again(self, what: str, path: str, options: dict[str, Any]) -> dict[str, Any]:
        """The options with which it is opened again."""
        if path not in self._options:
            raise ValueError(f"the {what} at {path} was not opened by this fixture: reopen one that it opened")
        return {**self._options[path], **options}


class StoreFactory(_Opened["MessageStore"]):
    """Opens stores under one directory. The fixture `rocketmq_store_factory` gives it to a test. Thread-safety: one thread.

    errors: the lines that the stores of this process logged at level ERROR since the fixture was set up: list of str. A test
    fails at its end if the list is not empty. A test that provokes errors clears the list.
    """

    def __call__(self, name: str = "store", **options: Any) -> "MessageStore":
        """The store `name` in the test's directory, opened, or made with profile "test".

        options: as for MessageStore.open. Variables of the environment do not count: a test is the same on every machine.
        Raises what MessageStore.open raises: StoreLocked for a name that is open.
        """
        return self._open(str(self.directory / name), options)

    def reopen(self, store: "MessageStore", **options: Any) -> "MessageStore":
        """Closes `store` and opens its directory again with the same options; options given here replace the old values.
        Raises what close() and MessageStore.open raise, and ValueError for a store that this fixture did not open."""
        chosen = self._again("store", store.path, options)
        store.close()
        return self._open(store.path, chosen)

    def _open(self, path: str, options: dict[str, Any]) -> "MessageStore":
        from rmq_store.store import MessageStore

        store = MessageStore.open(path, _environment={}, **{"profile": "test", **options})
        return self._keep(store.path, options, store)


class BrokerFactory(_Opened["Broker"]):
    """Opens brokers under one directory. The fixture `rocketmq_broker_factory` gives it to a test. Thread-safety: one thread.

    errors: as of StoreFactory.
    """

    def __call__(self, name: str = "broker", **options: Any) -> "Broker":
        """A broker over the store `name` in the test's directory, which is made with profile "test".

        options: as for Broker.open. A further broker of one cluster takes `namesrv=first.namesrv_address` and a brokerName of
        its own. Raises what Broker.open raises: StoreLocked for a name that is open.
        """
        return self._open(str(self.directory / name), options)

    def reopen(self, broker: "Broker", **options: Any) -> "Broker":
        """Closes `broker` and opens its directory again with the same options, at the same addresses, so that clients connect
        again; options given here replace the old values. Raises what close() and Broker.open raise, and ValueError for a broker
        that this fixture did not open."""
        path, where = broker.store.path, {"listen": broker.address, "namesrv_listen": broker.namesrv_address}
        chosen = self._again("broker", path, {**where, **options})
        broker.close()
        return self._open(path, chosen)

    def _open(self, path: str, options: dict[str, Any]) -> "Broker":
        from rmq_store.broker.serving import Broker

        broker = Broker.open(path, _environment={}, **{"profile": "test", "waitTimeMillsInSendQueue": 60_000, **options})
        return self._keep(broker.store.path, options, broker)


class _Errors(logging.Handler):
    """Keeps what is logged at level ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.name}: {record.getMessage()}")


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@contextmanager
def _no_errors(how: str) -> Iterator[list[str]]:
    """Fails the test if something was logged at level ERROR; gives the list of what was."""
    kept = _Errors()
    logger = logging.getLogger("rmq_store")
    logger.addHandler(kept)
    try:
        yield kept.texts
    finally:
        logger.removeHandler(kept)
    if kept.texts:
        pytest.fail(f"stores of this test logged errors ({how}):\n  " + "\n  ".join(kept.texts), pytrace=False)


def _marked(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """The options of the markers of that name; the one nearest to the test counts."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(name))):
        if marker.args:
            raise pytest.UsageError(f"{name}{marker.args!r}: give options by name, as in "
                                    f"@pytest.mark.{name}(flush_mode=\"sync\")")
        options |= marker.kwargs
    return options


@pytest.fixture
def rocketmq_store_factory(tmp_path: Path) -> Iterator[StoreFactory]:
    """A call returns a small, empty store: `rocketmq_store_factory(flush_mode="sync")`. A second store needs a name.
    `.reopen(store)` closes a store and opens it again. All stores are closed when the test ends; it fails if one logged an
    error."""
    with _no_errors("rocketmq_store_factory.errors.clear() where they are meant to") as errors:
        factory = StoreFactory(tmp_path, errors)
        yield factory
        factory.close()


@pytest.fixture
def rocketmq_store(request: pytest.FixtureRequest, rocketmq_store_factory: StoreFactory) -> "MessageStore":
    """An open rmq_store.MessageStore, small and empty, in the directory of the test. It is closed when the test ends.
    `@pytest.mark.rocketmq_store(flush_mode="sync")` gives it options."""
    return rocketmq_store_factory(**_marked(request, "rocketmq_store"))


@pytest.fixture
def rocketmq_broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """A call returns a broker with a small, empty store: `rocketmq_broker_factory(defaultTopicQueueNums=2)`. A second broker
    needs a name. `.reopen(broker)` closes a broker and opens it again at the same addresses. All brokers are closed when the
    test ends; it fails if one logged an error."""
    with _no_errors("rocketmq_broker_factory.errors.clear() where they are meant to") as errors:
        factory = BrokerFactory(tmp_path, errors)
        yield factory
        factory.close()


@pytest.fixture
def rocketmq_broker(request: pytest.FixtureRequest, rocketmq_broker_factory: BrokerFactory) -> "Broker":
    """A rmq_store.Broker on loopback, with a name server and a small, empty store in the directory of the test. Clients take
    `.namesrv_address`; `.store` is the store. It is closed when the test ends; the test fails if an error was logged. Sends may
    wait a minute before they are answered "busy", because the machine of a test may be busy.
    `@pytest.mark.rocketmq_broker(autoCreateTopicEnable=False)` gives it options."""
    return rocketmq_broker_factory(**_marked(request, "rocketmq_broker"))
