"""Three kinds of plots as SVG text, without any library: bars, latency by percentile, and a rate over time.

Colours come from CSS variables of the page (report.py), so that a plot follows its light or dark scheme.
"""
import math
from collections.abc import Sequence
from html import escape

WIDTH = 920
_LEFT, _RIGHT = 330, 120
SERIES = 8      # colours; later series begin again, dashed


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{escape(text)}</text>'


def _open(height: float, label: str) -> str:
    return (f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label, quote=True)}" '
            'xmlns="http://www.w3.org/2000/svg">')


def short(value: float) -> str:
    """1234567 -> 1.23M, 0.0123 -> 0.0123."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def bars(title: str, rows: Sequence[tuple[str, float, float, float, bool]], unit: str) -> str:
    """One horizontal bar a row: (name, value, lowest, highest, ours); the whisker is the range of the repetitions.

    A logarithmic axis where the values differ more than fiftyfold."""
    values = [v for _, *three, _ in rows for v in three if v > 0]
    if not values:
        return ""
    top, least = max(values), min(values)
    log = top / least > 50
    low = 10 ** math.floor(math.log10(least)) / 2 if log else 0.0

    def x(value: float) -> float:
        span = WIDTH - _LEFT - _RIGHT
        if log:
            return _LEFT + span * max(0.0, math.log(max(value, low) / low) / math.log(top / low))
        return _LEFT + span * value / top

    height = 30 + 22 * len(rows)
    parts = [_open(height, title)]
    for i, (name, value, lowest, highest, ours) in enumerate(rows):
        y = 26 + 22 * i
        parts.append(_text(_LEFT - 8, y + 11, name, "end"))
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{max(1.0, x(value) - _LEFT):.1f}" height="14" rx="2" '
                     f'class="{"ours" if ours else "peer"}"/>')
        if highest > lowest > 0:
            parts.append(f'<path d="M{x(lowest):.1f} {y + 7}H{x(highest):.1f}" class="range"/>')
        parts.append(_text(max(x(value), x(highest)) + 6, y + 11, f"{short(value)} {unit}", style="value"))
    parts.append(_text(_LEFT, 14, f"{unit}{', logarithmic axis' if log else ''}; line: range of the repetitions", style="note"))
    return "".join(parts) + "</svg>"


def percentiles(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> str:
    """Latency (log axis, µs) by percentile (the nines, log axis too); a series is (name, [(share, ns)])."""
    points = [(share, ns) for _, line in series for share, ns in line if ns > 0]
    if not points:
        return ""
    height, left, right, top, bottom = 360, 70, 20, 14, 330 - 30
    low = 10 ** math.floor(math.log10(min(ns for _, ns in points) / 1e3))
    high = 10 ** math.ceil(math.log10(max(ns for _, ns in points) / 1e3))
    high = high if high > low else low * 10
    nines = 6.0

    def x(share: float) -> float:
        return left + (WIDTH - left - right) * min(nines, -math.log10(max(1 - share, 10 ** -nines))) / nines

    def y(us: float) -> float:
        return bottom - (bottom - top) * math.log(us / low) / math.log(high / low)

    legend = 22 * ((len(series) + 1) // 2)
    parts = [_open(height + legend, title)]
    step = low
    while step <= high * 1.0001:
        parts.append(f'<path d="M{left} {y(step):.1f}H{WIDTH - right}" class="grid"/>')
        value, unit = (step * 1e3, "ns") if step < 1 else (step, "µs") if step < 1e3 else (step / 1e3, "ms")
        parts.append(_text(left - 6, y(step) + 4, f"{short(value)} {unit}", "end", "note"))
        step *= 10
    for share, name in ((0, "0"), (.9, "90"), (.99, "99"), (.999, "99.9"), (.9999, "99.99"), (.99999, "99.999")):
        parts.append(f'<path d="M{x(share):.1f} {top}V{bottom}" class="grid"/>')
        parts.append(_text(x(share), bottom + 18, f"{name} %", "middle", "note"))
    for i, (name, line) in enumerate(series):
        drawn = [(x(share), y(max(ns / 1e3, low))) for share, ns in line if ns > 0]
        dashed = ' stroke-dasharray="6 4"' if i >= SERIES else ""
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in drawn)
        parts.append(f'<path d="{path}" class="line c{i % SERIES}"{dashed}><title>{escape(name)}</title></path>')
        lx, ly = left + (i % 2) * (WIDTH - left) / 2, bottom + 44 + 22 * (i // 2)
        parts.append(f'<path d="M{lx:.0f} {ly - 4}h24" class="line c{i % SERIES}"{dashed}/>' + _text(lx + 30, ly, name))
    return "".join(parts) + "</svg>"


def over_time(title: str, series: Sequence[tuple[str, Sequence[float]]], slice_s: float, unit: str) -> str:
    """A rate over time, one value for each slice; a dot on the axis marks a slice in which nothing happened: a pause."""
    top = max((value for _, line in series for value in line), default=0.0)
    if top <= 0:
        return ""
    height, left, right, above, bottom = 330, 70, 20, 14, 300 - 30
    seconds = slice_s * max(len(line) for _, line in series)
    step = 10 ** math.floor(math.log10(top))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if top / s <= 6)

    def x(at: float) -> float:
        return left + (WIDTH - left - right) * at / seconds

    def y(value: float) -> float:
        return bottom - (bottom - above) * value / (top * 1.05)

    parts = [_open(height + 22 * ((len(series) + 1) // 2), title)]
    for i in range(int(top / step) + 1):
        parts.append(f'<path d="M{left} {y(i * step):.1f}H{WIDTH - right}" class="grid"/>')
        parts.append(_text(left - 6, y(i * step) + 4, short(i * step), "end", "note"))
    parts.append(_text(left, 10, unit, style="note"))
    every = max(1, round(seconds / 10))
    for at in range(0, int(seconds) + 1, every):
        parts.append(_text(x(at), bottom + 18, f"{at} s", "middle", "note"))
    for i, (name, line) in enumerate(series):
        path = "M" + "L".join(f"{x((n + .5) * slice_s):.1f} {y(value):.1f}" for n, value in enumerate(line))
        dashed = ' stroke-dasharray="6 4"' if i >= SERIES else ""
        parts.append(f'<path d="{path}" class="line c{i % SERIES}"{dashed}><title>{escape(name)}</title></path>')
        parts += [f'<circle cx="{x((n + .5) * slice_s):.1f}" cy="{bottom}" r="3" class="line c{i % SERIES}"/>'
                  for n, value in enumerate(line) if not value]
        lx, ly = left + (i % 2) * (WIDTH - left) / 2, bottom + 44 + 22 * (i // 2)
        parts.append(f'<path d="M{lx:.0f} {ly - 4}h24" class="line c{i % SERIES}"{dashed}/>' + _text(lx + 30, ly, name))
    return "".join(parts) + "</svg>"


def thinned(points: Sequence[tuple[float, float, int]], count: int, most: int = 160) -> list[tuple[float, float]]:
    """(share, ns) of a histogram's percentile points, at most `most`, even on the axis of nines, the last one always."""
    found: list[tuple[float, float]] = []
    before = -1.0
    for ns, share, _ in points:
        place = -math.log10(max(1 - share, 0.5 / max(count, 1)))
        if place - before >= 6.5 / most or share >= 1:
            found.append((min(share, 1 - 0.5 / max(count, 1)), ns))
            before = place
    return found
