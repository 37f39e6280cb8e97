"""The imports that docs/running-as-a-service.md lists for programs that change their root are all that a store needs later."""
import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
# Programs of their own, and what only stands behind an extra or an option that names files.
OTHERS = ("cli", "bench", "broker", "network", "namesrv", "spark", "pytest_plugin.py", "metrics.py")

AFTERWARDS = """
import sys

class Gone:                 # what a new root without Python's files makes of an import
    def find_spec(self, name, path=None, target=None):
        if name != "liburing":          # doctor asks whether it is there
            raise ModuleNotFoundError(f"No module named {name!r}: it is not in the list", name=name)

sys.meta_path.insert(0, Gone())
base = sys.argv[1]
small = {"segment_size_bytes": 1 << 16, "index_slots": 50, "index_entries_max": 400, "stats_file_interval_ms": 100}

async def tasks():
    async with await AsyncMessageStore.open(f"{base}/a", **small) as store:
        await store.put("T", b"x", wait=True)
        await store.wait_dispatched(timeout=60)
        async with await store.consumer("G", ["T"]) as consumer:
            (await consumer.poll(timeout=60)).ack()
        await store.scrub(bytes_per_s=None)
        await store.backup(f"{base}/backups-a")
        await store.clean(1)

asyncio.run(tasks())

async def future(store):
    await store.put_async("T", b"x")

with MessageStore.open(f"{base}/s", **small) as store:
    for i in range(300):
        store.put("T", b"x" * 500, keys=f"k{i}")
    store.put("T", b"later", delay_level=1)
    asyncio.run(future(store))
    store.flush()
    store.wait_dispatched(timeout=60)
    found = store.get("T", 0, 0)
    for shown in (found, found.messages[0], store.query_key("T", "k1")):
        shown._repr_html_()
    store.stats(), store.histograms(), store.runtime_info(), store.lag("G"), store.check_self()
    store.get("T", 0, 0, sql="a IS NULL OR b BETWEEN 3 AND 5")
    with store.transaction("T", b"x", group="P"):
        pass
    store.scrub(make_manifests=True, bytes_per_s=None)
    store.backup(f"{base}/backups")
    store.clean(0)
    store.reconfigure(flush_interval_ms="100 ms")
list(verify(f"{base}/s"))
scrub(f"{base}/s", bytes_per_s=None)
restore(f"{base}/backups", f"{base}/r")
copy_messages(f"{base}/r", f"{base}/c", **small)
with open(f"{base}/lines", "w+b") as lines:
    export_lines(f"{base}/r", lines)
    lines.seek(0)
    import_lines(lines, f"{base}/c2", **small)
backup(f"{base}/r", f"{base}/backups-r")
doctor(f"{base}/s", measure=False)
with MessageStore.open(f"{base}/s", readonly=True, follow=True):
    pass
"""


def listed():
    page = (ROOT / "docs" / "running-as-a-service.md").read_text().partition("## Programs that change their root")[2]
    return re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]


def later():
    """The modules that a function of the library imports."""
    found = set()
    for path in sorted((ROOT / "rmq_store").rglob("*.py")):
        if path.relative_to(ROOT / "rmq_store").parts[0] in OTHERS:
            continue
        tree = ast.parse(path.read_text())
        for function in (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found |= {f"importlib.{a.name}" if node.module == "importlib" else node.module for a in node.names}
    for path in sorted((ROOT / "rmq_store").rglob("*.pyx")):
        lines = re.findall(r"^ +(?:from ([\w.]+) import .*|import ([\w.]+))$", path.read_text(), re.MULTILINE)
        found |= {name for line in lines for name in line if name}
    return found


def test_the_list_has_every_module_that_a_function_imports():
    wanted = later()
    assert {"crc32c", "rmq_store.access.reader.shown", "rmq_store.services.integrity.scrubbing", "tomllib"} <= wanted
    script = f"{listed()}\nimport sys\nprint(*[name for name in sys.argv[1:] if name not in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script, *sorted(wanted)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_store_imports_nothing_more(tmp_path):
    done = subprocess.run([sys.executable, "-c", listed() + AFTERWARDS, str(tmp_path)], cwd=ROOT,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
