"""What a wheel and a source archive must and must not hold: python tools/wheel_contents.py WHEEL SDIST. Exit 1 if not so.

Run by tools/wheel on the repaired wheel: auditwheel has put its platform into the file name, and would have copied foreign
libraries into rmq_store.libs/.
"""
import re
import sys
import tarfile
import zipfile
from pathlib import Path

# Newest glibc a wheel may ask for: that of Debian 12.
GLIBC_MAX = (2, 36)
OURS = re.compile(r"rmq_store(/|-[^/]*\.dist-info/)|pyspark_rocketmq_store/(__init__\.py)?$")
# For packages that offer a flush back end, or a put hook in C.
HEADERS = ("rmq_store/log/flush/rmq_backend.h", "rmq_store/access/writer/rmq_put_hook.h")
LICENCES = ("LICENSE", "NOTICE", "LICENSES/liburing.txt", "LICENSES/libdeflate.txt")


def wheel_problems(path: Path) -> list[str]:
    problems = []
    platform = re.search(r"manylinux_(\d+)_(\d+)", path.name)
    if not platform:
        problems.append("not a manylinux wheel")
    elif (int(platform[1]), int(platform[2])) > GLIBC_MAX:
        problems.append(f"needs glibc {platform[1]}.{platform[2]}, newer than {GLIBC_MAX[0]}.{GLIBC_MAX[1]}")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
    shared = [n for n in names if n.endswith(".so")]
    if [n.split(".")[0] for n in shared] != ["rmq_store/_extensions"]:      # smoke.py imports each module that is in it
        problems.append(f"has the shared objects {shared}, not rmq_store/_extensions alone")
    problems += [f"{licence} is missing" for licence in LICENCES
                 if not any(n.endswith(f".dist-info/licenses/{licence}") for n in names)]
    problems += [f"holds {n}" for n in names
                 if n not in HEADERS and (".libs/" in n or n.endswith((".pyx", ".c", ".h")) or not OURS.match(n))]
    ours = Path(__file__).resolve().parents[1]
    for source in (ours / "rmq_store").rglob("*"):
        name = str(source.relative_to(ours))
        kept = source.suffix in (".py", ".pyi", ".pxd") or source.name == "py.typed" or name in HEADERS or \
            source.parent.name == "profiles"
        if kept and source.is_file() and name not in names:
            problems.append(f"{name} is missing")
    return problems


def sdist_problems(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    wanted = {"setup.py", "pyproject.toml", "native/include/rmq_io.h", "native/src/io.c", "rmq_store/base/io/_io.pyx",
              "tools/bootstrap", "tests/packaging/smoke.py", *LICENCES}
    built = {n for n in names if n.endswith((".so", ".o")) or (n.startswith("rmq_store/") and n.endswith(".c"))}
    return [f"{n} is missing" for n in sorted(wanted - names)] + [f"holds {n}" for n in sorted(built)]


def main() -> int:
    wheel, sdist = map(Path, sys.argv[1:])
    problems = [f"{wheel.name}: {p}" for p in wheel_problems(wheel)] + [f"{sdist.name}: {p}" for p in sdist_problems(sdist)]
    print("\n".join(problems) or f"wheel: {wheel.name} is clean, {wheel.stat().st_size / 1e6:.1f} MB")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
