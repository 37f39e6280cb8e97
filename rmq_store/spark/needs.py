"""What the Spark side needs beside the library, and what to do where it is not there. Any thread."""
import os
import shutil
import sys

from rmq_store.errors import RmqStoreError

__all__ = ["SparkUnavailable", "need_java", "need_pyarrow", "need_pyspark", "worker_python"]


class SparkUnavailable(RmqStoreError):
    """A part that Spark needs is missing on this machine. The message names the part and the cure."""

    def __init__(self, thing: str, reason: str, cure: str) -> None:
        super().__init__(thing, reason, cure)
        self.thing = thing
        self.reason = reason
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.thing} is needed to use a store from Spark: {self.reason}: {self.cure}"


def need_pyarrow() -> None:
    """Raises SparkUnavailable where pyarrow cannot be imported."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise SparkUnavailable("pyarrow", str(error), _WORKER_HINT) from error


def need_pyspark() -> None:
    """Raises SparkUnavailable where pyspark 4.2 or later, or pyarrow, cannot be imported."""
    need_pyarrow()
    try:
        import pyspark
    except ImportError as error:
        raise SparkUnavailable("pyspark", str(error), "pip install 'rmq_store[spark]'") from error
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):        # the first with limits for streams
        raise SparkUnavailable("pyspark 4.2", f"this is pyspark {pyspark.__version__}", "pip install 'rmq_store[spark]'")


def need_java() -> str:
    """Path of the java that a local session starts. Raises SparkUnavailable where there is none; Connect needs none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        if os.access(java, os.X_OK):
            return java
        raise SparkUnavailable("Java 17", f"JAVA_HOME is {home}, and {java} is not a program", "correct or unset JAVA_HOME")
    found = shutil.which("java")
    if found is None:
        raise SparkUnavailable("Java 17", "there is no java on PATH, and JAVA_HOME is not set",
                               "apt-get install openjdk-17-jre-headless (tools/bootstrap --spark does it), or set JAVA_HOME")
    return found


def worker_python() -> None:
    """Has the workers of a local session use this interpreter, unless PYSPARK_PYTHON says another one.

    Otherwise Spark takes the python3 of PATH, which need not have this package.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


_WORKER_HINT = ("pip install 'rmq_store[spark]'; where only a worker says this, it runs another Python: set PYSPARK_PYTHON "
                "(spark.pyspark.python) to the interpreter that has it")
