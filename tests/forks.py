"""Forks of a process that has threads, for tests that are about just that."""
import os
import warnings


def fork() -> int:
    """os.fork(). Python 3.12 warns of it where the process has threads: the child may need a lock that one of them held. The
    children of these tests look, answer and os._exit."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
        return os.fork()
