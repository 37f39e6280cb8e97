"""Build of the Cython extensions; replaced as the skeleton grows."""
import os
import subprocess
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("RMQ_STORE_DEBUG") == "1"


def extension(path):
    name = ".".join(path.with_suffix("").parts)
    sources = [str(path)]
    if name == "rmq_store.io._io":
        sources += [str(p) for p in sorted(Path("native/src").glob("*.c"))]
    archives = [subprocess.check_output(["cc", f"-print-file-name={a}"], text=True).strip()
                for a in ("libdeflate.a", "liburing.a")]
    return Extension(name, sources, include_dirs=["native/include"],
                     extra_objects=archives,
                     extra_compile_args=["-O2", "-std=gnu11", "-g", "-Wall", "-Wno-unused-function"],
                     define_macros=[("RMQ_DEBUG", "1")] if DEBUG else [])


setup(name="rmq_store", version="0.1.0", packages=[],
      ext_modules=cythonize([extension(p) for p in sorted(Path("rmq_store").rglob("_*.pyx"))], build_dir="build/cython",
                            nthreads=2, compiler_directives={
                                "language_level": 3, "boundscheck": DEBUG, "wraparound": DEBUG, "nonecheck": DEBUG,
                                "initializedcheck": DEBUG, "cdivision": True, "embedsignature": True}))
