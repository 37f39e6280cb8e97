"""Waiting in a test for what another thread does soon."""
import threading


def until(condition, looks=5_000):
    """Returns when condition() is true; `looks`, one a millisecond, is the longest that a test may hang where it does not."""
    pause = threading.Event()
    while not condition():
        assert (looks := looks - 1)
        pause.wait(0.001)
