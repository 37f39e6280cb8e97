"""What a Python process that Spark started for its tasks does for itself when this package is imported there."""
import gc
import os

__all__ = ["spare_imports"]


def spare_imports() -> None:
    """In a worker that Spark uses again, leaves what is imported by now out of garbage collections; elsewhere does nothing.

    Spark collects after each task and each plan. Walking all that pyspark, pyarrow and this package have made at import takes
    longer than anything else that a small task does, and finds nothing.
    """
    if "SPARK_REUSE_WORKER" in os.environ:
        gc.collect()
        gc.freeze()
