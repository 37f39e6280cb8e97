"""Build of the Cython extensions: every rmq_store/**/_*.pyx is one, linked statically with liburing and libdeflate.

Metadata is in pyproject.toml; here is only what needs a compiler. RMQ_STORE_DEBUG=1 is the one debug switch: Cython's bounds
and None checks, C assertions (RMQ_DEBUG), -O1 and -g. Generated C stays under build/cython. Changing the switch, a flag or the
Cython version throws away what was built before, so that no store ever runs half of each.
"""
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("RMQ_STORE_DEBUG", "0") not in ("", "0")
GENERATED = Path("build/cython")
FINGERPRINT = Path("build/fingerprint")

# pkg-config name, archive, oldest release whose functions we call, Debian package
LIBRARIES = [("liburing", "liburing.a", "2.3", "liburing-dev"), ("libdeflate", "libdeflate.a", "1.14", "libdeflate-dev")]

# Who compiles what of native/src. The ring goes with its one user; the rest is reached through the table in io/_io.pxd.
NATIVE = {"rmq_store.log.flush._ring": ["ring.c"], "rmq_store.queues.consumequeue._owner": ["queue_dirs.c"],
          "rmq_store.base.io._io": ["io.c", "guard.c", "probe_trace.c", "probe_gate.c", "probe_rules.c", "probe_calls.c",
                                   "probe_ring.c", "probe.c"],
          "rmq_store.replication._master": ["../ha/ha.c", "../ha/ha_replica.c"],
          "rmq_store.replication._slave": ["../ha/ha_connect.c"]}
# Headers of one room: no change of them builds the other rooms again.
OWN = {"rmq_store.network.": "native/net", "rmq_store.replication.": "native/ha"}

DIRECTIVES = {"language_level": 3, "cdivision": True, "embedsignature": True, "boundscheck": DEBUG, "wraparound": DEBUG,
              "nonecheck": DEBUG, "initializedcheck": DEBUG}
# Rooms with a header for other packages.
HEADERS = ["rmq_store/log/flush", "rmq_store/access/writer"]

# What is switched off is what Cython's output cannot avoid.
COMPILE = ["-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-parameter",
           "-Wno-sign-compare", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
# Python's own flags carry -g, a fifth of the time it takes; CFLAGS=-g keeps it.
COMPILE += ["-O1", "-g", "-UNDEBUG", "-DRMQ_DEBUG=1"] if DEBUG else ["-O2"]
COMPILE += [] if DEBUG or "-g" in shlex.split(os.environ.get("CFLAGS", "")) else ["-g0"]
LINK = ["-Wl,--exclude-libs,ALL", "-Wl,-z,relro,-z,now"]


def extension(path):
    name = ".".join(path.with_suffix("").parts)
    native = [f"native/src/{source}" for source in NATIVE.get(name, [])]
    own = [place for room, place in OWN.items() if name.startswith(room)]
    return Extension(name, [str(path), *native], include_dirs=["native/include", *own, *HEADERS],
                     depends=sorted(str(f) for place in ("native/include", *own) for f in Path(place).glob("*.[ch]")),
                     extra_compile_args=COMPILE, extra_link_args=LINK)


def output(*command):
    """What a tool prints, or None if it fails or is not there."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def compiler():
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def archive(cc, library, filename):
    """Path of a static library, beside what pkg-config says or where the compiler looks; None if there is none."""
    places = [Path(output("pkg-config", "--variable=libdir", library) or "/nonexistent", filename),
              Path(output(*cc, f"-print-file-name={filename}") or filename)]
    return next((str(p) for p in places if p.is_absolute() and p.is_file()), None)


def requirements():
    """(archives, include directories) of the libraries. Whatever is missing is reported at once, with its Debian package."""
    cc = compiler()
    missing = []
    if shutil.which(cc[0]) is None:
        missing.append((f"no C compiler: {cc[0]} not found", "gcc libc6-dev"))
    elif output(*cc, "-print-file-name=libc.so") in (None, "libc.so"):
        missing.append(("no C library headers", "libc6-dev"))
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing.append((f"no Python.h for {sys.executable}", "python3-dev"))
    archives, includes = [], []
    if shutil.which("pkg-config") is None:
        missing.append(("pkg-config not found", "pkg-config"))
        missing += [(f"{name} is looked for with it", package) for name, _, _, package in LIBRARIES]
    else:
        for name, filename, oldest, package in LIBRARIES:
            found = output("pkg-config", "--modversion", name)
            if found is None:
                missing.append((f"{name} not found by pkg-config", package))
            elif output("pkg-config", f"--atleast-version={oldest}", name) is None:
                missing.append((f"{name} {found} is too old, {oldest} or newer is needed (Debian 12, Ubuntu 24.04)", package))
            elif (path := archive(cc, name, filename)) is None:
                missing.append((f"{name} {found} is here without its static library {filename}", package))
            else:
                archives.append(path)
                flags = shlex.split(output("pkg-config", "--cflags-only-I", name) or "")
                includes += [f[2:] for f in flags]
    if missing:
        reasons = "".join(f"\n  - {reason}" for reason, _ in missing)
        packages = " ".join(dict.fromkeys(package for _, package in missing))
        sys.exit(f"rmq_store cannot be built here:{reasons}\nOn Debian or Ubuntu: apt-get install {packages}")
    return archives, includes


class BuildExt(build_ext):
    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self):
        archives, includes = requirements()
        try:
            import Cython
            from Cython.Build import cythonize
            from Cython.Compiler.Errors import CompileError
        except ImportError:
            sys.exit("rmq_store cannot be built here:\n  - no Cython for this Python\nTry: pip install 'Cython>=3.1'")
        self.discard_if_changed(f"{Cython.__version__} {compiler()} {DIRECTIVES} {COMPILE} {LINK} {archives}")
        try:
            made = cythonize(self.extensions, build_dir=str(GENERATED), nthreads=os.cpu_count(), quiet=True,
                             compiler_directives=DIRECTIVES)
        except CompileError as e:  # the errors themselves are printed already
            sys.exit(f"Cython could not compile {e}")
        by_name = {m.name: m for m in made}
        for e in self.extensions:  # in place: setuptools has put attributes of its own on these
            e.sources = by_name[e.name].sources
            e.depends = sorted({*e.depends, *by_name[e.name].depends, *archives})
            e.extra_objects = archives
            e.include_dirs = [*e.include_dirs, *includes]
        super().run()

    def build_extensions(self):
        # A Python that was built with an rpath of its own hands it to every extension; a wheel must not carry a path of
        # the machine it was made on.
        self.compiler.linker_so = [a for a in self.compiler.linker_so if not a.startswith("-Wl,-rpath")]
        self.compile_shared()
        super().build_extensions()

    def compile_shared(self):
        """Compiles what several extensions link, once and before them: they are built at the same time, and one would link
        the object file that another is just writing."""
        users = [e for e in self.extensions if e.name.startswith("rmq_store.network.")]
        if users:
            objects = self.compiler.compile(sorted(str(f) for f in Path("native/net").glob("*.c")), output_dir=self.build_temp,
                                            include_dirs=["native/include", "native/net"], extra_postargs=COMPILE)
        for e in users:
            e.extra_objects = [*objects, *e.extra_objects]

    def discard_if_changed(self, settings):
        for place in (Path(), Path(self.build_lib)):        # of a module that has another name by now
            for made in (place / "rmq_store").rglob("_*.so"):
                source = made.relative_to(place)
                if not source.with_name(made.name.split(".")[0] + ".pyx").exists():
                    made.unlink()
        now = hashlib.sha256(settings.encode()).hexdigest()
        if FINGERPRINT.is_file() and FINGERPRINT.read_text() == now:
            return
        for stale in (GENERATED, Path(self.build_temp)):
            shutil.rmtree(stale, ignore_errors=True)
        for place in (Path("rmq_store"), Path(self.build_lib)):  # build_py has put its files into the latter
            for stale in place.rglob("_*.so"):
                stale.unlink()
        FINGERPRINT.parent.mkdir(exist_ok=True)
        FINGERPRINT.write_text(now)


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent)
    setup(ext_modules=[extension(p) for p in sorted(Path("rmq_store").rglob("_*.pyx"))], cmdclass={"build_ext": BuildExt})
