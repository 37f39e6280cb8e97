"""What spark-submit runs: the jobs of `rmqstore spark`, with spark-submit's master and settings.

    spark-submit [options] "$(python -c 'import rmq_store.cli.submit as s; print(s.__file__)')" audit STORE --json

The process that runs it has this package installed, as the workers do (docs/spark.md). The exit code is the job's, which
spark-submit gives back in client mode.
"""
import os
import sys

__all__ = ["main"]


def main() -> int:
    """Runs the job that the arguments name; returns its exit code."""
    # Python puts the directory of a script before all others, and modules here have names that others have too.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    from rmq_store.cli.main import main as rmqstore

    return rmqstore(["spark", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
