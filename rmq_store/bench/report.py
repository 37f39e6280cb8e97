"""The report of a run: one HTML file that holds everything, plots included, and loads nothing from anywhere."""
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from rmq_store.bench import figures, svg
from rmq_store.bench.case import OURS, WORKLOADS

STYLE = """
:root { --ink: #1d2430; --soft: #5d6778; --line: #d9dee6; --page: #fff; --ours: #1565c0; --peer: #9aa5b4; --good: #1b7a3d;
  --bad: #b3261e; --c0: #1565c0; --c1: #d9480f; --c2: #2b8a3e; --c3: #862e9c; --c4: #0b7285; --c5: #a61e4d; --c6: #5c940d;
  --c7: #495057; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #3a4250; --page: #14181f;
  --ours: #64a8f0; --peer: #5d6778; --good: #6fcf8b; --bad: #f28b82; --c0: #64a8f0; --c1: #ff922b; --c2: #69db7c;
  --c3: #da77f2; --c4: #3bc9db; --c5: #f783ac; --c6: #a9e34b; --c7: #ced4da; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
td, th { padding: .2rem .55rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.name, th.name { text-align: left; } .note, caption { color: var(--soft); }
.pass { color: var(--good); font-weight: 600; } .miss { color: var(--bad); font-weight: 600; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--ink); }
svg .note { fill: var(--soft); font-size: 11px; } svg .ours { fill: var(--ours); } svg .peer { fill: var(--peer); }
svg .range { stroke: var(--ink); stroke-width: 1.5; } svg .grid { stroke: var(--line); }
svg .line { fill: none; stroke-width: 1.8; }
""" + "".join(f"svg .c{i} {{ stroke: var(--c{i}); }}\n" for i in range(svg.SERIES))

Result = Mapping[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], named: int, css: Mapping[str, str] = {}) -> str:
    """`named` columns hold text; a cell whose text is in `css` gets that class."""
    def cell(tag: str, i: int, text: str) -> str:
        style = css.get(text, "name" if i < named else "")
        return f'<{tag} class="{style}">{escape(text)}</{tag}>'
    lines = ["<tr>" + "".join(cell("th", i, t) for i, t in enumerate(head)) + "</tr>"]
    lines += ["<tr>" + "".join(cell("td", i, t) for i, t in enumerate(row)) + "</tr>" for row in rows]
    return '<div class="wide"><table>' + "".join(lines) + "</table></div>"


def _bars(title: str, results: Sequence[Result], key: str, unit: str) -> str:
    rows = []
    for r in results:
        values = [run[key] for run in r["runs"] if key in run]
        if values:
            rows.append((r["name"], figures.medians(r["runs"])[key], min(values), max(values), r["case"]["subject"] == OURS))
    plot = svg.bars(title, rows, unit) if len(rows) > 1 else ""
    return f"<h3>{escape(title)}</h3>{plot}" if plot else ""


def _curves(results: Sequence[Result]) -> str:
    series = []
    for r in results:
        for name, histogram in figures.merged(r).items():
            if name in ("call", "response", "put", "delivery", "views", "key"):
                points = svg.thinned(figures.percentile_points(histogram), histogram.count)
                series.append((r["name"] if name == "call" else f"{r['name']}: {name}", points))
    plot = svg.percentiles("latency by percentile", series)
    return f"<h3>Latency by percentile</h3>{plot}" if plot else ""


def _section(workload: str, place: str, results: Sequence[Result], several: bool) -> str:
    ran = [r for r in results if r["runs"]]
    title = f"{workload}, {place}" if several else workload
    parts = [f'<h2>{escape(title)}</h2><p class="note">{escape(WORKLOADS[workload].text)}</p>']
    if ran:
        head, rows = figures.table(ran)
        parts.append(table(head, rows, 1))
        key = "sustained_per_s" if all("sustained_per_s" in r["runs"][0] for r in ran) else "msgs_per_s"
        words = {"sustained_per_s": "Messages a second until all is flushed", "msgs_per_s": "Messages a second"}
        parts.append(_bars(words[key], ran, key, "/s"))
        parts.append(_bars("p99.9 of a call", ran, "p999_us", "µs"))
        parts.append(_curves(ran))
    missing = [f"<li>{escape(r['name'])}: {escape(r.get('skipped') or 'failed: ' + r.get('error', ''))}</li>"
               for r in results if not r["runs"]]
    if missing:
        parts.append(f"<p>Not measured:</p><ul>{''.join(missing)}</ul>")
    return "".join(parts)


def _disks(results: Sequence[Result]) -> str:
    """The same case on each disk, side by side: messages a second."""
    places = list(dict.fromkeys(r["dir"] for r in results))
    cases: dict[str, dict[str, float]] = {}
    for r in results:
        found = figures.medians(r["runs"])
        if "msgs_per_s" in found:
            cases.setdefault(r["name"], {})[r["dir"]] = found["msgs_per_s"]
    rows = [(name, *(figures.number(by.get(p), 0) for p in places)) for name, by in cases.items() if len(by) > 1]
    if not rows:
        return ""
    return ('<h2>Disks side by side</h2><p class="note">Messages a second.</p>'
            + table(("case", *places), rows, 1))


def facts(name: str, known: Mapping[str, Any]) -> str:
    """A table of what is known of a machine."""
    rows = [(k, json.dumps(v) if isinstance(v, (dict, list)) else str(v)) for k, v in known.items() if v is not None]
    return f"<h3>{escape(name)}</h3>" + table(("", ""), rows, 2)


def html(title: str, machines: Mapping[str, Mapping[str, Any]], results: Sequence[Result],
         verdicts: Sequence[Sequence[str]] = (), smoke: bool = False) -> str:
    """The page. `verdicts`: a head and rows (promise, figures, target, verdict), shown first."""
    parts = [f"<h1>{escape(title)}</h1>"]
    if smoke:
        parts.append("<p><b>A smoke run: it shows that everything runs. The figures mean nothing.</b></p>")
    if verdicts:
        parts.append("<h2>What was promised</h2>" + table(verdicts[0], verdicts[1:], 1, {"PASS": "pass", "short of": "miss"}))
    several = len({r["dir"] for r in results}) > 1
    if several:
        parts.append(_disks(results))
    order = sorted(results, key=lambda r: (list(WORKLOADS).index(r["case"]["workload"]), r["dir"]))
    for (workload, place), group in groupby(order, key=lambda r: (r["case"]["workload"], r["dir"])):
        parts.append(_section(workload, place, list(group), several))
    parts.append("<h2>How to read</h2><ul><li>Figures are medians of the repetitions; histograms hold all of them.</li>"
                 "<li>Closed loop unless a rate is named: a stall then is one slow call. At a rate, latency counts from the "
                 "moment a put was due.</li><li>fio's quantiles: the sum of its write's and its sync's, an "
                 "estimate.</li><li><i>foreign</i>: share of all CPUs used by others; above 0.15 a run was disturbed. "
                 "<i>MiB+</i>: memory beyond the pool.</li></ul><h2>Measured on</h2>")
    parts += [facts(name, known) for name, known in machines.items()]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n")
