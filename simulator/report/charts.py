"""The charts of a run and of an experiment."""

from collections.abc import Sequence
from html import escape

import numpy as np

from windtunnel.simulator.experiments.outcome import Figure, Outcome, StepOutcome
from windtunnel.simulator.experiments.table import before, change, figure, made_of, spread
from windtunnel.simulator.report import svg
from windtunnel.simulator.report.gather import Gathered
from windtunnel.simulator.report.labels import Box, grouped, leader, placed
from windtunnel.simulator.results.cautions import cautions

HEIGHT = 210.0
LANES_WIDTH, LANES_LEFT = 1240.0, 30.0
"""The timeline has the page's whole width."""
_NAMES = {"ttft_s": "first token", "tpot_s": "time per output token", "e2e_s": "whole call"}
_CURVE = 240
"""Points of a distribution's curve."""
_LINE = 15.0
"""Height of a line of words under a bar."""
_DOT = 8.0
"""Width of a point: hollow, so that one on another is seen."""


def throughput(run: Gathered) -> str:
    """Output tokens a second over the run, the measured window shaded."""
    top = max((value for _, value in run.tokens_per_s), default=0.0) or 1.0
    x, y = svg.plot_area(HEIGHT, (0, run.length_s), (0, top * 1.05))
    marks = [*_window(run, x, y), svg.area(x, y, run.tokens_per_s, "decode")]
    marks.append(svg.line(x, y, run.tokens_per_s, "decode"))
    return svg.chart(HEIGHT, x, y, marks, title="output tokens a second over time", x_label="s", y_label="tokens/s")


def per_agent(run: Gathered) -> str:
    """What one request in flight gets of it."""
    top = max((value for _, value in run.per_agent if value is not None), default=0.0) or 1.0
    x, y = svg.plot_area(HEIGHT, (0, run.length_s), (0, top * 1.05))
    marks = [*_window(run, x, y), svg.line(x, y, run.per_agent, "prefill")]
    title = "output tokens a second for each request in flight, over time"
    return svg.chart(HEIGHT, x, y, marks, title=title, x_label="s", y_label="tokens/s for each request in flight")


def kv(run: Gathered) -> str:
    """The working set of all live sessions and the KV cache in use, against what the cache holds."""
    values = [value for _, value in (*run.kv, *run.working_set) if value is not None]
    top = max([*values, run.kv_tokens or 0.0]) or 1.0
    x, y = svg.plot_area(HEIGHT, (0, run.length_s), (0, top * 1.08))
    marks = [*_window(run, x, y), svg.line(x, y, run.working_set, "tool"), svg.line(x, y, run.kv, "decode")]
    if run.kv_tokens is not None:
        marks.append(svg.line(x, y, [(0.0, run.kv_tokens), (run.length_s, run.kv_tokens)], "limit"))
    return svg.chart(HEIGHT, x, y, marks, title="KV cache and working set", x_label="s", y_label="tokens")


def latencies(run: Gathered) -> str:
    """Cumulative distributions; the horizontal axis is logarithmic."""
    known = {name: values[values > 0] for name, values in run.latencies.items()}
    known = {name: values for name, values in known.items() if len(values)}
    if not known:
        return ""
    low = min(float(values[0]) for values in known.values())
    high = max(float(values[-1]) for values in known.values())
    low, high = 10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(max(high, low * 1.01)))
    x, y = svg.plot_area(HEIGHT, (float(low), float(high)), (0, 1), x_log=True)
    marks = []
    for name, values in known.items():
        shares = np.linspace(0, 1, min(_CURVE, len(values)) + 1)[1:]
        at = np.quantile(values, shares)
        marks.append(svg.line(x, y, list(zip(at.tolist(), shares.tolist(), strict=True)), name))
    title = "distributions of latencies"
    chart = svg.chart(HEIGHT, x, y, marks, title=title, x_label="", y_label="share of calls", x_format=_seconds)
    return chart + "".join(f'<p class="sub">{escape(said)}</p>' for said in cautions(run.summary))


def lanes(run: Gathered) -> str:
    """A lane for each agent, coloured by what it was doing."""
    row = 9.0 if len(run.lanes) > 24 else 13.0
    height = svg.TOP + row * max(1, len(run.lanes)) + svg.BOTTOM
    x = svg.Scale(0, run.length_s, LANES_LEFT, LANES_WIDTH - svg.RIGHT)
    width = (x.end - x.start) * run.lanes_step_s / run.length_s
    parts = [f'<svg class="chart" viewBox="0 0 {LANES_WIDTH:g} {height:g}" role="img" aria-label="agents over time">']
    paths: dict[str, list[str]] = {}
    for place, (agent, spans) in enumerate(run.lanes):
        top = svg.TOP + place * row
        if place % (1 if row > 9 else 2 if len(run.lanes) <= 32 else 4) == 0:
            parts.append(svg.text(LANES_LEFT - 6, top + row - 3, f"{agent + 1}", "tick", anchor="end"))
        for first, columns, state in spans:
            wide = min(columns * width, x.end - x.start - first * width)
            box = f"M{x.start + first * width:.1f} {top:.1f}h{wide:.1f}v{row - 2:.1f}h{-wide:.1f}z"
            paths.setdefault(state, []).append(box)
    parts += [f'<path class="lane {state}" d="{"".join(boxes)}"/>' for state, boxes in paths.items()]
    for tick in x.ticks():
        parts.append(svg.text(x(tick), height - svg.BOTTOM + 15, svg.short(tick), "tick", anchor="middle"))
    parts.append(svg.text((x.start + x.end) / 2, height - 4, "s", "label", anchor="middle"))
    return "".join([*parts, "</svg>"])


def ladder(outcome: Outcome, metric: str, *, flips: Sequence[str] = ()) -> str:
    """A bar for each step with its interval, and what the step changes; steps named in `flips` are marked."""
    said = [_said(step, metric, outcome) for step in outcome.steps]
    row, gap = 31.0 + _LINE * max(map(len, said), default=1), 8.0
    height = gap + (row + gap) * len(outcome.steps) + 6
    known = [step.metrics[metric] for step in outcome.steps if metric in step.metrics]
    top = max((f.high or f.value or 0.0 for f in known), default=0.0) or 1.0
    x = svg.Scale(0, top, 8.0, svg.WIDTH - 8.0)
    parts = [f'<svg class="chart" viewBox="0 0 {svg.WIDTH:g} {height:g}" role="img" aria-label="{metric} by step">']
    for place, (step, lines) in enumerate(zip(outcome.steps, said, strict=True)):
        y = gap + place * (row + gap)
        if step.name in flips:
            parts.append(svg.rect(0, y - 4, svg.WIDTH, row + 8, "flip"))
        parts += _bar(step, metric, lines, x, y)
    return "".join([*parts, "</svg>"])


def _said(step: StepOutcome, metric: str, outcome: Outcome) -> list[tuple[str, str]]:
    """What stands below a step's bar, (words, class) of each line. A ratio stands beside the bar's figure; where it is
    made of others, behind those.
    """
    found, versus = step.metrics.get(metric, Figure(None)), step.versus_previous.get(metric)
    mine = figure(metric, found.value)
    if versus is None:
        return [(mine, "base")]
    of = made_of(metric, versus, found, before(step, outcome).metrics.get(metric, Figure(None)))
    if not of:
        return [(f"{mine}   {change(versus)}", versus.verdict)]
    return [(mine, "base"), (f"{of}:", "base"), (change(versus), versus.verdict)]


def _bar(step: StepOutcome, metric: str, said: Sequence[tuple[str, str]], x: svg.Scale, y: float) -> list[str]:
    parts = [svg.text(x.start, y + 11, step.name[:64], "step")]
    if not step.runs:
        return [*parts, svg.text(x.start, y + 30, step.failure[:105], "bad")]
    found = step.metrics.get(metric, Figure(None))
    verdict = said[-1][1]
    if found.value is not None:
        parts.append(svg.rect(x.start, y + 16, x(found.value) - x.start, 12, f"bar {verdict}", spread(metric, found)))
        if found.low is not None and found.high is not None and found.high > found.low:
            parts.append(svg.whisker(x(found.low), x(found.high), y + 22))
    lines = enumerate(said)
    return [*parts, *(svg.text(x.start, y + 41 + _LINE * n, words, f"value {kind}") for n, (words, kind) in lines)]


def agents_against_total(outcome: Outcome) -> str:
    """Each step by what all get together and what one stream gets: up and to the right is better.

    Steps that lie on each other share a label; which step a number is, and its figures, stand below.
    """
    total, each = "output_tokens_per_s", "tpot_s.p50"
    points = [
        (number, step, step.metrics[total].value, step.metrics[each].value)
        for number, step in enumerate(outcome.steps, start=1)
        if total in step.metrics and each in step.metrics
    ]
    known = [(n, step.name, t, 1 / tpot) for n, step, t, tpot in points if t and tpot]
    if not known:
        return ""
    right = max(t for _, _, t, _ in known)
    top = max(e for _, _, _, e in known)
    x, y = svg.plot_area(HEIGHT, (0, right * 1.08), (0, top * 1.12))
    dots = [Box(x(t), y(e), _DOT, _DOT) for _, _, t, e in known]
    groups = grouped(dots)
    words = [", ".join(str(known[i][0]) for i in group) for group in groups]
    firsts = [dots[group[0]] for group in groups]
    sizes = [Box(0, 0, svg.CHARACTER * len(said) + 4, 11) for said in words]
    marks, rows = [], []
    for dot, (number, name, t, e) in zip(dots, known, strict=True):
        said = escape(f"{name}: {t:,.0f} tokens/s together, {e:,.1f} each")
        place = f'cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="{_DOT / 2:g}"'
        marks.append(f'<circle class="dot" {place}><title>{said}</title></circle>')
        rows.append(f"<span><b>{number}</b> {said}</span>")
    labels = placed(firsts, sizes, (x.start, x.end), (svg.TOP, y.start), dots)
    for group, label, said in zip(groups, labels, words, strict=True):
        others = [dot for i, dot in enumerate(dots) if i not in group]
        if (ends := leader(dots[group[0]], label, others)) is not None:
            marks.append('<path class="leader" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>'.format(*ends))
        marks.append(svg.text(label.x, label.y + 3.8, said, "dot-label", anchor="middle"))
    chart = svg.chart(
        HEIGHT, x, y, marks, title="tokens a second of one stream against all", x_label="tokens/s, all together",
        y_label="tokens/s of one stream",
    )  # fmt: skip
    return f'{chart}<p class="legend">{"".join(rows)}</p>'


def _window(run: Gathered, x: svg.Scale, y: svg.Scale) -> list[str]:
    if run.window is None:
        return []
    first, last = (x(t) for t in run.window)
    return [svg.rect(first, y.end, last - first, y.start - y.end, "window", "measured window")]


def _seconds(value: float) -> str:
    return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"


def legend(*names: tuple[str, str]) -> str:
    """(class, words) pairs."""
    items = "".join(f'<span><i class="key {kind}"></i>{escape(words)}</span>' for kind, words in names)
    return f'<p class="legend">{items}</p>'


LATENCY_LEGEND = tuple(_NAMES.items())


def lane_legend(run: Gathered) -> str:
    """What the colours of the lanes mean; of the kinds of waiting for a first token only those that are drawn."""
    drawn = {state for _, spans in run.lanes for _, _, state in spans}
    words = {
        "queue": "held back, on the way to the engine's queue, or in it"
        if "prefill" in drawn
        else "held back by the client",
        "prefill": "prefill: until the first token",
        "first": "waiting for the first token: queue or prefill, which is not told",
        "decode": "tokens arriving",
        "tool": "tools running",
        "waiting": "waiting for a person, or between",
        "failed": "a call or session failed",
    }
    hidden = {"prefill", "first"} - drawn
    return legend(*((state, said) for state, said in words.items() if state not in hidden))
