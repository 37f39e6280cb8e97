"""Fixtures of the fault tests."""
import logging

import pytest


@pytest.fixture(autouse=True)
def quiet_recovery():
    """Thousands of recoveries would fill the report of a failing test with their warnings."""
    logger = logging.getLogger("rmq_store")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
