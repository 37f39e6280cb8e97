"""How `rmqstore stat` shows the figures that a running store publishes (stats_file_interval_ms): as a block, and as lines."""
import io
import time
from collections.abc import Mapping
from typing import Any

from rmq_store.cli.output import Output
from rmq_store.services.cleaning.rules import used_percent
from rmq_store.services.statistics.live import live_path, read_live

__all__ = ["HEAD", "block", "line", "look", "row"]

MIB = 1 << 20
WINDOWS = "statsMinute", "statsHour", "statsDay"
HEAD = (f"{'time':>8}  {'puts/s':>10}  {'MiB/s':>7}  {'got/s':>7}  {'unflushed':>9}  {'undispatched':>12}  "
        f"{'flush p99 ms':>12}  {'visible p99 ms':>14}  {'behind':>9}  {'log MiB':>9}  {'disk %':>6}")


def look(root: str) -> tuple[dict[str, Any] | None, str]:
    """As read_live, and only what can be shown: a file that somebody has changed may have any shape."""
    figures, age = read_live(root)
    if figures is None:
        return None, age
    try:
        line(row(figures, {**figures, "written_ms": figures["written_ms"] - 1}, root))
        block(figures, age, Output(False, io.StringIO()))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return None, f"no live figures: {live_path(root)} is damaged ({error!r}); you can delete the file"
    return figures, age


def row(figures: Mapping[str, Any], before: Mapping[str, Any] | None, root: str) -> dict[str, Any]:
    """What one line shows: rates since `before`, other figures of the same process, or since its last writing."""
    stats, recent = figures["stats"], figures["recent"]
    names, seconds = ("puts", "put_bytes", "got_messages"), recent["seconds"]
    growth = {name: recent[name] for name in names}
    if before is not None and _same(before, figures) and figures["written_ms"] > before["written_ms"]:
        seconds = (figures["written_ms"] - before["written_ms"]) / 1000
        growth = {name: stats[name] - before["stats"][name] for name in names}
    return {
        **{f"{name}_s": count / seconds if seconds > 0 else 0.0 for name, count in growth.items()},
        "unflushed_bytes": stats["wrote"] - stats["flushed"], "undispatched_bytes": stats["dispatch_behind_bytes"],
        "flush_p99_us": recent["durations"]["flush"]["p99_us"], "visible_p99_us": recent["durations"]["dispatch_lag"]["p99_us"],
        "waiting": sum(group["behind"] for group in figures["groups"].values()), "delayed": figures["delayed"],
        "log_begin": stats["min_log_offset"], "log_end": stats["wrote"], "log_files": stats["log_files"],
        "errno": stats["errno"], "disk_full": stats["disk_full"], "put_lock_ms": stats["put_lock_ms"],
        "running_flags": stats.get("running_flags", []),        # a writer of an earlier release tells none
        "disk_pct": used_percent(root), "pid": figures["pid"], "written_ms": figures["written_ms"]}


def _same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return (before["pid"], before["opened_ms"]) == (now["pid"], now["opened_ms"])


def line(r: Mapping[str, Any]) -> str:
    """A row for people, under HEAD; what needs somebody's attention stands behind it."""
    wrong = [text for text, is_so in ((f"FAILED, errno {r['errno']}", r["errno"]), ("DISK FULL", r["disk_full"]),
                                      (f"put lock held for {r['put_lock_ms']} ms", r["put_lock_ms"] > 500)) if is_so]
    wrong += [name.replace("_", " ") for name in r["running_flags"]
              if name != "DISK_FULL" and not (name == "FENCED" and r["errno"])]
    return (f"{time.strftime('%H:%M:%S', time.localtime(r['written_ms'] / 1000))}  {r['puts_s']:10.0f}  "
            f"{r['put_bytes_s'] / MIB:7.2f}  {r['got_messages_s']:7.0f}  {r['unflushed_bytes'] / MIB:9.1f}  "
            f"{r['undispatched_bytes'] / MIB:12.1f}  {r['flush_p99_us'] / 1000:12.2f}  {r['visible_p99_us'] / 1000:14.2f}  "
            f"{r['waiting']:9d}  {(r['log_end'] - r['log_begin']) / MIB:9.1f}  {r['disk_pct']:6d}"
            + "".join(f"  {text}" for text in wrong))


def block(figures: Mapping[str, Any], age: str, out: Output) -> None:
    """All of it, below what `stat` shows of the files."""
    recent, rates = figures["recent"], figures["rates"]
    out.line()
    out.line(f"live figures, {age}; the last {recent['seconds']:.1f} s:")
    out.table(("durations", "count", "p50 µs", "p99 µs", "p99.9 µs", "max µs"), [
        (name, d["count"], *(f"{d[key]:.1f}" for key in ("p50_us", "p99_us", "p999_us", "max_us")))
        for name, d in recent["durations"].items()])
    out.line()
    out.table(("per second over", "10 s", "60 s", "600 s"), [
        (what, *(f"{x:.1f}" for x in rates[name])) for name, what in (
            ("puts", "puts"), ("found", "gets that found"), ("missed", "gets that missed"), ("transferred", "messages got"))])
    items = [(name, key, *(item[window]["sum"] for window in WINDOWS), item["statsMinute"]["tps"])
             for name, rows in figures.get("items", {}).items() for key, item in rows.items()]
    if items:
        out.line()
        out.table(("item", "key", "minute", "hour", "day", "tps"), [(*row, f"{tps:.1f}") for *row, tps in items])
    _replication(figures, out)
    if figures["groups"]:
        out.line()
        out.table(("group", "behind", "lost"), [(g, x["behind"], x["lost"]) for g, x in sorted(figures["groups"].items())])


def _replication(figures: Mapping[str, Any], out: Output) -> None:
    """Nothing of a store that takes part in none, or whose writer is of an earlier release."""
    state: Mapping[str, Any] = figures.get("replication", {})
    if not state or (state["role"] == "master" and state["address"] is None):
        return
    out.line()
    if state["role"] == "slave":
        known = state["master_offset"]
        behind = "" if known is None else f", {max(known - figures['stats']['wrote'], 0):,} bytes behind what it has heard of"
        out.line(f"slave of {state['master']}: {state['state']}{behind}")
        copied = state["copied_ms"]
        out.line(f"topics, groups and offsets of {state['broker'] or 'nobody'}"
                 + ("" if copied is None else f", copied {max(figures['written_ms'] - copied, 0) / 1000:.1f} s before"))
        return
    out.line(f"{state['role']}: slaves connect to {state['address']}")
    if state["replicas"]:
        out.table(("replica", "acknowledged", "lag bytes", "lag ms", "sent bytes"), [
            (r["address"], r["offset"], r["lag_bytes"], r["lag_ms"], r["sent_bytes"]) for r in state["replicas"]])
