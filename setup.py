"""Build of the extension modules: every rmq_store/**/_*.pyx is one. All are linked into one shared object,
rmq_store._extensions, statically with liburing and libdeflate; rmq_store/modules.py finds them in it.

Metadata is in pyproject.toml; here is only what needs a compiler. RMQ_STORE_DEBUG=1 is the one debug switch: Cython's bounds
and None checks, C assertions (RMQ_DEBUG), -O1 and -g. Generated C stays under build/cython. Changing the switch, a flag or the
Cython version throws away what was built before, so that no store ever runs half of each.
"""
import concurrent.futures
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
WHOLE = "rmq_store._extensions"
FINGERPRINT = Path("build/fingerprint")

# pkg-config name, archive, oldest release whose functions we call, Debian package
LIBRARIES = [("liburing", "liburing.a", "2.3", "liburing-dev"), ("libdeflate", "libdeflate.a", "1.14", "libdeflate-dev")]

# Who compiles what of native/src. The ring goes with its one user; the rest is reached through the table in io/_io.pxd.
NATIVE = {"rmq_store.log.flush._ring": ["ring.c"], "rmq_store.queues.consumequeue._owner": ["queue_dirs.c"],
          "rmq_store.base.io._io": ["home.c", "io.c", "guard.c", "probe_trace.c", "probe_gate.c", "probe_rules.c",
                                   "probe_calls.c", "probe_ring.c", "probe.c"],
          "rmq_store.network._front": [f"../net/{path.name}" for path in sorted(Path("native/net").glob("*.c"))],
          "rmq_store.replication._master": ["../ha/ha.c", "../ha/ha_replica.c", "../ha/ha_wait.c"],
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


def init_of(name):
    """The C function that begins a module. By the whole name, as modules of two rooms may be called alike."""
    return "PyInit_" + name.replace(".", "_")


def extension(path):
    """One module, as Cython and the compiler see it."""
    name = ".".join(path.with_suffix("").parts)
    native = [f"native/src/{source}" for source in NATIVE.get(name, [])]
    own = [place for room, place in OWN.items() if name.startswith(room)]
    macros = [] if name == WHOLE else [(f"PyInit_{path.stem}", init_of(name)), ("CYTHON_NO_PYINIT_EXPORT", "1")]
    return Extension(name, [str(path), *native], include_dirs=["native/include", str(GENERATED), *own, *HEADERS],
                     define_macros=macros,
                     depends=sorted(str(f) for place in ("native/include", *own) for f in Path(place).glob("*.[ch]")))


def modules():
    return [extension(path) for path in sorted(Path("rmq_store").rglob("_*.pyx"))]


def whole():
    """What setuptools builds and copies: one shared object."""
    return Extension(WHOLE, [source for module in modules() for source in module.sources])


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


def is_older(made, sources):
    """Whether a file is missing, or older than one of those that it is made of."""
    made = Path(made)
    return not made.is_file() or any(Path(source).stat().st_mtime > made.stat().st_mtime for source in sources)


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
        self.discard_if_changed(f"{Cython.__version__} {compiler()} {DIRECTIVES} {WHOLE} {COMPILE} {LINK} {archives}")
        self.write_table([module.name for module in modules() if module.name != WHOLE])
        try:
            self.made = cythonize(modules(), build_dir=str(GENERATED), nthreads=os.cpu_count(), quiet=True,
                                  compiler_directives=DIRECTIVES)
        except CompileError as e:  # the errors themselves are printed already
            sys.exit(f"Cython could not compile {e}")
        self.archives, self.includes = archives, includes
        super().run()

    def write_table(self, names):
        """The modules that the shared object has, for rmq_store/_extensions.pyx. A table that stays is not written again."""
        lines = ["/* Made by setup.py: the modules of this build. */",
                 *(f"extern PyObject *{init_of(name)}(void);" for name in names), "static const rmq_module rmq_modules[] = {",
                 *(f'    {{"{name}", {init_of(name)}}},' for name in names), "    {NULL, NULL}", "};", ""]
        path = GENERATED / "rmq_modules.h"
        if not path.is_file() or path.read_text() != "\n".join(lines):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines))

    def build_extensions(self):
        # A Python that was built with an rpath of its own hands it to every extension; a wheel must not carry a path of
        # the machine it was made on.
        self.compiler.linker_so = [a for a in self.compiler.linker_so if not a.startswith("-Wl,-rpath")]
        table = str(GENERATED / "rmq_modules.h")
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as threads:
            jobs = [threads.submit(self.compiled, source, module, [table] if module.name == WHOLE else [])
                    for module in self.made for source in module.sources]
            objects = [job.result() for job in jobs]
        target = self.get_ext_fullpath(WHOLE)
        if self.force or is_older(target, [*objects, *self.archives]):
            self.compiler.link_shared_object([*objects, *self.archives], target, extra_postargs=LINK,
                                             export_symbols=[f"PyInit_{WHOLE.rpartition('.')[2]}"], build_temp=self.build_temp)

    def compiled(self, source, module, more):
        """The object file of one C file, compiled if something that it depends on is newer. Several threads."""
        (made,) = self.compiler.object_filenames([source], output_dir=self.build_temp)
        if self.force or is_older(made, [source, *module.depends, *more]):
            self.compiler.compile([source], output_dir=self.build_temp, macros=module.define_macros,
                                  include_dirs=[*module.include_dirs, *self.includes], extra_postargs=COMPILE)
        return made

    def discard_if_changed(self, settings):
        for place in (Path(), Path(self.build_lib)):        # of one module each: Python would take them for the new ones
            for made in (place / "rmq_store").glob("*/**/_*.so"):
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
    setup(ext_modules=[whole()], cmdclass={"build_ext": BuildExt})
