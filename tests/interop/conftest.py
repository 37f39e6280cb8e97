"""Fixtures: the JVMs, started together once for all tests here, and the marker."""
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import jvm

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[jvm.JavaStore]]:
    """The real store in its three versions; skips where this machine cannot run it."""
    logs = tmp_path_factory.mktemp("java")
    stores = [jvm.JavaStore(version, logs / f"{version}.log") for version in jvm.VERSIONS]
    try:
        for store in stores:
            store.wait_ready()
        yield stores
    except jvm.NotHere as missing:
        pytest.skip(f"the real RocketMQ store cannot run here: {missing}")
    finally:
        for store in stores:
            store.kill()


@pytest.fixture
def java(jvms: list[jvm.JavaStore]) -> Iterator[list[jvm.JavaStore]]:
    """The JVMs, each with no answer outstanding."""
    yield jvms
    for store in jvms:
        store.forget()
