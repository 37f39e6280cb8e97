"""The files of the probe stand in a line: each calls functions of files before it only."""
import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "native" / "src"
LINE = ("probe_trace.c", "probe_gate.c", "probe_rules.c", "probe_calls.c", "probe_ring.c", "probe.c")
DEFINITION = re.compile(r"^(?!static)[a-z][\w *]*?\**(\w+)\([^;]*\) \{", re.M)


def test_each_file_calls_files_before_it():
    assert {path.name for path in SOURCES.glob("probe*.c")} == set(LINE)
    texts = {name: (SOURCES / name).read_text(encoding="utf-8") for name in LINE}
    where = {function: name for name, text in texts.items() for function in DEFINITION.findall(text)}
    assert {"probe_end", "probe_gated", "probe_begin", "probe_fill_calls", "probe_fill_ring", "rmq_probe_new"} <= set(where)
    for name, text in texts.items():
        called = {where[word] for word in re.findall(r"\b(\w+)\(", text) if word in where}
        assert all(LINE.index(other) <= LINE.index(name) for other in called), (name, called)
