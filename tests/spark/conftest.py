"""One local Spark session for all tests of this folder, and golden stores that they share."""
import pytest

from tests import golden_store, spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with spark_session.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """stores("v5-plain") -> a golden case unpacked once, for tests that only read it."""
    done: dict[str, golden_store.GoldenCase] = {}

    def unpacked(name):
        if name not in done:
            done[name] = golden_store.unpack(name, tmp_path_factory.mktemp(name))
        return done[name]

    return unpacked
