"""From raw runs to what is shown: medians of repetitions, merged histograms, the terminal table, HdrHistogram files."""
import base64
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rmq_store.base.histogram._histogram import Histogram

Result = Mapping[str, Any]

# figure -> head of its column, decimals
COLUMNS = {"msgs_per_s": ("msgs/s", 0), "burst_per_s": ("burst/s", 0), "sustained_per_s": ("sustained/s", 0),
           "mib_per_s": ("MiB/s", 1), "flushed_mib_per_s": ("flushed MiB/s", 1), "p50_us": ("p50 µs", 2),
           "p99_us": ("p99 µs", 1), "p999_us": ("p99.9 µs", 1),
           "corrected_p999_us": ("p99.9 corr.", 1), "max_us": ("max µs", 0), "flushes_per_step": ("flush/step", 2),
           "journal_commits_per_step": ("jrnl/step", 2), "cpu_ns_per_msg": ("CPU ns/msg", 0),
           "peak_beyond_pool_mib": ("MiB+", 1), "foreign": ("foreign", 2)}


def medians(runs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Medians of every number that all runs have."""
    several = list(runs)
    if not several:
        return {}
    return {k: statistics.median(r[k] for r in several) for k, v in several[0].items()
            if isinstance(v, (int, float)) and not isinstance(v, bool) and all(k in r for r in several)}


def merged(result: Result) -> dict[str, Histogram]:
    """The histograms of all repetitions together, by name."""
    found: dict[str, Histogram] = {}
    for run in result["runs"]:
        for name, state in run.get("histograms", {}).items():
            found.setdefault(name, Histogram()).merge(Histogram.from_dict(state))
    return found


def number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


def table(results: Iterable[Result]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: one row a case, medians of its repetitions; cases that did not run say why below the table."""
    shown = [(r, medians(r["runs"])) for r in results if r["runs"]]
    columns = {k: v for k, v in COLUMNS.items() if any(k in m for _, m in shown)}
    several = len({r["dir"] for r, _ in shown}) > 1
    head = ("case", *(["directory"] if several else []), *(name for name, _ in columns.values()))
    rows = [(r["name"], *([r["dir"]] if several else []), *(number(m.get(k), d) for k, (_, d) in columns.items()))
            for r, m in shown]
    return head, rows


def table_lines(results: Iterable[Result]) -> list[str]:
    """The table as text: names to the left, numbers to the right; then what was skipped."""
    several = list(results)
    head, rows = table(several)
    lines = []
    if rows:
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        left = 2 if "directory" in head else 1
        for row in [head, *rows]:
            cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(cells).rstrip())
    for r in several:
        if "skipped" in r or "error" in r:
            lines.append(f"{'skipped' if 'skipped' in r else 'FAILED'}: {r['name']} in {r['dir']}: "
                         f"{r.get('skipped') or r.get('error')}")
    return lines


def percentile_points(histogram: Histogram) -> list[tuple[float, float, int]]:
    """(value in ns, share of all at or below it, count so far) at the end of each bucket that holds anything."""
    points, seen = [], 0
    for _, high, count in histogram.buckets():
        seen += count
        points.append((float(min(high, histogram.highest)), seen / histogram.count, seen))
    return points


def hgrm(histogram: Histogram, scale: float = 1000.0) -> str:
    """The percentile text of HdrHistogram (outputPercentileDistribution), which its plotters read; values in µs by default."""
    lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
    for value, share, seen in percentile_points(histogram):
        tail = f"{1 / (1 - share):14.2f}" if share < 1 else f"{'inf':>14}"
        lines.append(f"{value / scale:12.3f} {share:14.12f} {seen:10d} {tail}")
    mean = histogram.mean
    deviation = 0.0
    if histogram.count:
        deviation = (sum(n * ((low + high) / 2 - mean) ** 2 for low, high, n in histogram.buckets()) / histogram.count) ** .5
    lines += [f"#[Mean    = {mean / scale:12.3f}, StdDeviation   = {deviation / scale:12.3f}]",
              f"#[Max     = {histogram.highest / scale:12.3f}, Total count    = {histogram.count:12d}]",
              "#[Buckets = 35, SubBuckets = 128]", ""]
    return "\n".join(lines)


def encoded(histogram: Histogram) -> str | None:
    """The histogram in HdrHistogram's V2 compressed form, base64; None without the package hdrhistogram."""
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        return None
    theirs = HdrHistogram(1, 1 << 42, 3)
    for low, high, count in histogram.buckets():
        theirs.record_value(max(1, min((low + high) // 2, histogram.highest)), count)
    text: bytes = theirs.encode()
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        text = base64.b64encode(text)
    return text.decode("ascii")


def write_hgrm(results: Iterable[Result], directory: Path) -> list[Path]:
    """One .hgrm file for each histogram, and hdr.hlog with all of them encoded where hdrhistogram is installed."""
    directory.mkdir(parents=True, exist_ok=True)
    written, log = [], ["#[Histogram log format version 1.3]", '"StartTimestamp","Interval_Length","Interval_Max",'
                        '"Interval_Compressed_Histogram"']
    for number_, result in enumerate(results):
        for name, histogram in merged(result).items():
            stem = re.sub(r"[^A-Za-z0-9.=]+", "-", f"{number_:02d}-{result['name']}-{name}")
            path = directory / f"{stem}.hgrm"
            path.write_text(hgrm(histogram))
            written.append(path)
            if (text := encoded(histogram)) is not None:
                seconds = histogram.mean * histogram.count / 1e9
                log.append(f"Tag={stem},0.000,{seconds:.3f},{histogram.highest / 1e6:.3f},{text}")
    if len(log) > 2:
        path = directory / "hdr.hlog"
        path.write_text("\n".join(log) + "\n")
        written.append(path)
    return written
