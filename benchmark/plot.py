"""Learning curves with error bars and a table of final returns, from the files of runs.

    python -m benchmark.plot runs --out docs/_static/curves
    python -m benchmark.plot runs --collect benchmark/results/curves     small copies, to commit
    python -m benchmark.plot benchmark/results/curves --out docs/_static/curves

Writes OUT-steps, OUT-time and OUT-iqm as .png and .svg, and OUT.md. Environment, algorithm and seed
are read from the name of the run folder, <env>__<algorithm>__<seed>, or of the CSV file. Runs whose
arguments (args.json in the run folder) differ are not averaged: the line's name then says how.
"""

import csv
import io
import itertools
import json
import re
import sys
from argparse import BooleanOptionalAction
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmark import (
    COLUMNS,
    LARGEST,
    ROOT,
    final_return,
    read_curve,
    run_name,
    save_figure,
    without_folder,
)
from common.cli import Parser, integer, run_cli
from common.errors import RunError, UserError
from common.files import file_name, write_file
from envs.table import find

SCRIPTS = ("rsac", "rsac_sharing", "rtd3", "rdpg", "sac", "td3", "ddpg", "conv_sac")
MEMORYLESS = ("sac", "td3", "ddpg")  # on the full state they bound what a memory can reach
# Okabe & Ito's colours for the colour-blind, without the yellow that is too light for a line. Lines
# differ in dashes and markers, too, so that they can be told apart in black and white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*"
BASELINES = "benchmark/results/baselines.csv"
POINTS = 41  # of the curves across tasks
# Arguments that may differ between the runs of one line.
FREE = {"seed", "run_dir", "device", "num_threads", "resume", "video"}
# Where a run was to end changes nothing before it, and --partial compares how far they came.
FREE |= {"total_steps"}


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="run folders, folders of them, or CSV files")
    add("--out", default="curves", help="path and start of the names of the files to write")
    add("--env-ids", nargs="+", metavar="ID", help="only these environments")
    add("--algorithms", nargs="+", metavar="NAME", help="only these, in this order")
    add("--partial", action="store_true", help="include runs that are not finished, or shorter")
    add("--baselines", default=BASELINES, metavar="FILE", help="table of baselines, or none")
    add("--from-step", type=integer(0), default=0, help="draw curves from here on [env steps]")
    add("--iqm", action=BooleanOptionalAction, default=True, help="also draw a mean across tasks")
    add("--collect", metavar="DIR", help="do not plot; copy the curves there, one file per run")
    add("--bootstrap", type=integer(100), default=2000, help="resamples for an interval")
    return parser.parse_args(argv)


# ---- 1. Reading ----


@dataclass
class Run:
    """The evaluations of one run; step, seconds and value are arrays (evaluations,)."""

    path: Path
    env_id: str
    algorithm: str
    seed: str
    step: np.ndarray
    seconds: np.ndarray
    value: np.ndarray
    args: dict | None = None  # that can change results; None if they are not known
    total: int = 0  # the step at which it is finished, if that is known
    origins: list = field(default_factory=list)  # a dict for each process of the run

    def final(self):
        return final_return(self.step, self.value)


def skip(path, reason):
    """Tells of a run that is left out."""
    print(f"skipped {path}: {reason}", file=sys.stderr)


def read_runs(paths, skip):
    """All readable runs in the paths, sorted; calls skip(path, reason) for the others."""
    files = []
    for path in map(Path, paths):
        if not path.exists():
            raise UserError(f"there is no {path}")
        found = sorted(path.rglob("*.csv")) if path.is_dir() else [path]
        # In a run folder only progress.csv is ours; elsewhere a name with __ is a collected run.
        files += [f for f in found if f.name == "progress.csv" or f.stem.count("__") >= 2]
    runs = []
    for path in files:
        name = path.resolve().parent.name if path.name == "progress.csv" else path.stem
        parts = name.split("__")
        if len(parts) < 3:
            skip(path, f"the name {name} is not <env>__<algorithm>__<seed>")
            continue
        try:
            curve, args = read_curve(path), read_args(path.with_name("args.json"))
            origins = read_origins(path)
        except (OSError, ValueError) as error:
            skip(path, error)
            continue
        curve = [curve[column] for column in COLUMNS]
        total = (args or {}).get("total_steps", 0)
        if args is not None:
            args = {name: value for name, value in args.items() if name not in FREE}
        runs.append(Run(path, *parts[:3], *curve, args, total, origins))
    return runs


def read_json(path):
    """What a JSON file holds, None if there is no such file; ValueError if it is damaged."""
    try:
        return json.loads(path.read_text()) if path.exists() else None
    except ValueError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error


def read_args(path):
    """The arguments of a run, None if there is no such file."""
    args = read_json(path)
    if args is not None and not isinstance(args, dict):
        raise ValueError(f"{path.name} is damaged: it has no arguments")
    if args and not isinstance(args.get("total_steps", 0), int):
        raise ValueError(f"{path.name} is damaged: total_steps is no number")
    return args


def read_origins(path):
    """Where a run comes from: run.json beside progress.csv, or comments in a collected curve."""
    if path.name == "progress.csv":
        origins = read_json(path.with_name("run.json")) or []
    else:
        heads = [line for line in path.read_text().splitlines() if line.startswith("# {")]
        origins = [json.loads(head[2:]) for head in heads]
    if not isinstance(origins, list) or not all(isinstance(origin, dict) for origin in origins):
        raise ValueError("run.json is damaged: it is no list of processes")
    try:
        list(map(without_folder, origins))
    except (AttributeError, ValueError) as error:
        raise ValueError(f"run.json is damaged: a command cannot be read ({error})") from error
    return origins


def split_settings(runs, say):
    """The runs; if arguments differ between runs of a line, its names contain them.

    say(line): told of each group that is split.
    """
    groups = {}
    for run in runs:
        if run.args is not None:
            groups.setdefault((run.env_id, run.algorithm), []).append(run.args)
    differ = {}  # group -> names of arguments that are not the same in all its runs
    for key, group in groups.items():
        names = sorted(set().union(*group))
        differ[key] = [x for x in names if any(args.get(x) != group[0].get(x) for args in group)]
        if differ[key]:
            env_id, algorithm = key
            say(f"{env_id}, {algorithm}: runs differ in {', '.join(differ[key])}: drawn apart")
    named = []
    for run in runs:
        names = differ.get((run.env_id, run.algorithm), []) if run.args is not None else []
        values = [json.dumps(run.args.get(name)).strip('[]"') for name in names]
        words = "".join(f"-{name}={x}" for name, x in zip(names, values, strict=True))
        words = re.sub(r"[^\w.=+-]+|__+", "-", words)  # may become a part of a file's name
        named.append(replace(run, algorithm=run.algorithm + words))
    return named


def drop_partial(runs, skip):
    """Leaves out runs that are not finished, or shorter than others of their line."""
    longest = {}
    for run in runs:
        if run.step[-1] >= run.total:
            key = run.env_id, run.algorithm
            longest[key] = max(longest.get(key, 0), run.step[-1])
    kept = []
    for run in runs:
        total = max(run.total, longest.get((run.env_id, run.algorithm), 0))
        if run.step[-1] < total:
            skip(run.path, f"partial, {run.step[-1]:.0f} of {total:.0f} steps; see --partial")
        else:
            kept.append(run)
    return kept


def drop_repeated(runs, skip):
    """Keeps one run for each environment, algorithm and seed: the longest, then the last."""
    by_key = {}
    for run in sorted(runs, key=lambda run: (run.step[-1], str(run.path))):
        key = run.env_id, run.algorithm, run.seed
        if key in by_key:
            skip(by_key[key].path, f"the same environment, algorithm and seed as {run.path}")
        by_key[key] = run
    return list(by_key.values())


def select(runs, wanted, names_of):
    """The runs of which one of the names, names_of(run), is wanted."""
    wanted = set(map(file_name, wanted))
    for missing in sorted(wanted.difference(*map(names_of, runs))):
        print(f"no run of {missing}", file=sys.stderr)
    return [run for run in runs if names_of(run) & wanted]


def longer_there(run, folder):
    """Whether a folder has a longer curve of the same name; tells if so."""
    path = collected(run, folder)
    with suppress(OSError, ValueError):
        if read_curve(path)["global_step"][-1] > run.step[-1]:
            skip(run.path, f"{path} is longer; delete it, or use another folder")
            return True
    return False


def collected(run, folder):
    """The path of a collected curve."""
    return Path(folder) / f"{run_name(run.env_id, run.algorithm, run.seed)}.csv"


def collect(runs, folder):
    """Writes each run to <folder>/<env>__<algorithm>__<seed>.csv with five digits, whole steps.

    Comments at its head say where it comes from.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    for run in runs:
        text = io.StringIO()
        text.writelines(f"# {json.dumps(without_folder(origin))}\n" for origin in run.origins)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for step, seconds, value in zip(run.step, run.seconds, run.value, strict=True):
            writer.writerow([int(step), round(seconds, 1), f"{value:.5g}"])
        try:
            write_file(collected(run, folder), text.getvalue().encode())
        except RunError as error:
            raise UserError(str(error)) from error
    print(f"{len(runs)} runs collected in {folder}", file=sys.stderr)


def read_baselines(path):
    """Environment -> list of (name, mean return), from a file that benchmark.baselines wrote."""
    if path == "none":
        return {}
    path = ROOT / path if path == BASELINES else path  # of this repository, wherever it is used
    bars = {}
    try:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                bar = row["controller"], float(row["mean"])
                if not abs(bar[1]) < LARGEST:
                    raise ValueError(row["mean"])
                bars.setdefault(file_name(row["env_id"]), []).append(bar)
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"--baselines {path} is not a table of benchmark.baselines") from error
    return bars


# ---- 2. Panels ----


def make_panels(runs):
    """Environment -> algorithm -> runs.

    What sees more of the same task joins its panel as a bound, under a name that says so: stacked
    frames (`-concat5`), and without a memory the full state (the environment's `oracle`).
    """
    plain = {run.env_id for run in runs if "-concat" not in run.env_id}
    panels = {}
    for run in runs:
        places = [(run.env_id, run.algorithm)]
        stacked = re.fullmatch(r"(.*)-concat(\d+)(-v\d+)", run.env_id)
        if stacked and stacked[1] + stacked[3] in plain:
            places = [(stacked[1] + stacked[3], f"{run.algorithm}, {stacked[2]} frames")]
        bounded = plain if run.algorithm.split("-")[0] in MEMORYLESS else ()
        for env_id in bounded:
            info = find(env_id)
            if info and info.oracle == run.env_id != env_id:
                places.append((env_id, f"{run.algorithm}, full state"))
        for env_id, label in places:
            panels.setdefault(env_id, {}).setdefault(label, []).append(run)
    return {env_id: panels[env_id] for env_id in sorted(panels)}


def sort_labels(labels, wanted=None):
    """In the order asked for, or recurrent scripts first; bounds last."""
    order = list(wanted or SCRIPTS)

    def key(label):
        base, _, bound = label.partition(",")
        script = base if base in order else base.split("-")[0]
        return bool(bound), order.index(script) if script in order else len(order), label

    return sorted(labels, key=key)


# ---- 3. Statistics ----


def align(runs):
    """Steps (S,), mean seconds (S,) and values (runs, S) at the evaluations that the runs share.

    Nothing is interpolated. A run that is over has NaN; a step that one of the others lacks goes.
    """
    steps = np.unique(np.concatenate([run.step for run in runs]))
    for run in runs:
        steps = steps[np.isin(steps, run.step) | (steps > run.step[-1])]
    values, seconds = (np.full((len(runs), len(steps)), np.nan) for _ in range(2))
    for k, run in enumerate(runs):
        at = np.isin(run.step, steps)
        values[k, : at.sum()], seconds[k, : at.sum()] = run.value[at], run.seconds[at]
    return steps, np.nanmean(seconds, axis=0), values


def bootstrap(values, resamples, seed=0):
    """95 % percentile interval of the mean over the first axis: low, high, each (S,).

    values: (seeds, S), NaN where a seed has none. One seed alone has no interval: both are NaN.
    """
    n = len(values)
    there = np.isfinite(values)
    # How often each seed is drawn: weights do in one product what resampled copies do in many.
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = weights @ np.where(there, values, 0) / (weights @ there)
    with np.errstate(invalid="ignore"):
        low, high = np.nanpercentile(means, [2.5, 97.5], axis=0)
    single = there.sum(axis=0) < 2
    return np.where(single, np.nan, low), np.where(single, np.nan, high)


def held(run, at, axis):
    """The last evaluation up to each point `at` of an axis, "step" or "seconds", (points,)."""
    index = np.searchsorted(getattr(run, axis), at, side="right") - 1
    return run.value[np.maximum(index, 0)]


def mean_over_time(run, until):
    """Mean return over the first `until` seconds of a run, each evaluation held until the next."""
    return held(run, np.linspace(0, until, 1000, endpoint=False), "seconds").mean()


def across_tasks(panels, bars, resamples):
    """Interquartile mean (IQM) across tasks: what to draw, or None where it says nothing.

    Scores: 0 is random actions (the first evaluation where they were not measured), 1 the best
    final mean on the task. Tasks on which no final mean is above 0 say nothing and are left out.
    Returns tasks, names of algorithms and tasks left out, {label: {"final", "minutes", "step",
    "seconds": (points, iqm, low, high)}}. "step" and "seconds" are curves; of "final" and of
    "minutes", the mean over the time in which all runs of a task still ran, there is one value.
    """
    labels = sort_labels({label for panel in panels.values() for label in panel})
    low, high = {}, {}
    for env_id, panel in panels.items():
        first = [run.value[0] for runs in panel.values() for run in runs]
        low[env_id] = random_score(bars, env_id, np.mean(first))
        high[env_id] = max(np.mean([run.final() for run in runs]) for runs in panel.values())
    panels = {env_id: panel for env_id, panel in panels.items() if high[env_id] > low[env_id]}
    covered, inside = common_tasks(panels)
    if len(covered) < 2 or len(inside) < 2:
        return None
    members = {label: [panels[env_id][label] for env_id in covered] for label in inside}
    end = max(run.seconds[-1] for runs in members.values() for r in runs for run in r)
    shortest = [
        min(run.seconds[-1] for label in inside for run in panels[env_id][label])
        for env_id in covered
    ]
    result = {label: {} for label in inside}
    for part in ("final", "minutes", "step", "seconds"):
        points = np.linspace(0, end if part == "seconds" else 1, POINTS)
        for label, by_task in members.items():
            scores = []  # of each task, (seeds, points)
            for env_id, runs, until in zip(covered, by_task, shortest, strict=True):
                if part == "final":
                    value = [[run.final()] for run in runs]
                elif part == "minutes":
                    value = [[mean_over_time(run, until)] for run in runs]
                else:
                    value = [
                        held(run, points * (run.step[-1] if part == "step" else 1), part)
                        for run in runs
                    ]
                scores.append((np.array(value) - low[env_id]) / (high[env_id] - low[env_id]))
            result[label][part] = (points, *interquartile_mean(scores, resamples))
    return covered, [x for x in [*labels, *low] if x not in [*inside, *covered]], result


def random_score(bars, env_id, default=None):
    """Mean return of random actions, `default` where it was not measured."""
    return dict(bars.get(env_id, [])).get("random", default)


def common_tasks(panels):
    """Tasks and labels such that every label has every task: as many pairs of both as can be.

    Looked for among the tasks of each label, and what two labels have in common.
    """
    labels = sort_labels({label for panel in panels.values() for label in panel})
    tasks = [{env_id for env_id, panel in panels.items() if label in panel} for label in labels]
    best = [], []
    for a, b in itertools.combinations_with_replacement(tasks, 2):
        inside = [label for label, its in zip(labels, tasks, strict=True) if a & b <= its]
        enough = len(a & b) > 1 and len(inside) > 1
        if enough and len(a & b) * len(inside) > len(best[0]) * len(best[1]):
            best = sorted(a & b), inside
    return best


def interquartile_mean(scores, resamples, seed=0):
    """Mean of the middle half of all scores and its 95 % interval: iqm, low, high, each (points,).

    scores: for each task (seeds, points). The bootstrap draws seeds anew within each task, as in
    Agarwal et al. 2021, arXiv:2108.13264. One seed alone has no interval.
    """
    from scipy.stats import bootstrap, trim_mean

    def iqm(*samples, axis):
        return trim_mean(np.concatenate(samples, axis=axis), 0.25, axis=axis)

    mean = iqm(*scores, axis=0)
    if min(map(len, scores)) < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    interval = bootstrap(
        scores, iqm, n_resamples=resamples, axis=0, method="percentile", rng=seed
    ).confidence_interval
    return mean, interval.low, interval.high


# ---- 4. Drawing ----


def make_styles(labels, wanted):
    """Label -> keywords of a line; a script looks the same in every figure."""
    labels, styles = sort_labels(labels, wanted), {}
    fixed = {name: k for k, name in enumerate(SCRIPTS)}
    numbers = {label: fixed[label] for label in labels if label in fixed}
    for label in labels:
        if label not in numbers:  # in a colour that this figure has least
            colours = [k % len(COLOURS) for k in numbers.values()]
            free = (k for k in itertools.count(len(SCRIPTS)) if k not in numbers.values())
            nearest = itertools.islice(free, len(COLOURS))
            numbers[label] = min(nearest, key=lambda k: colours.count(k % len(COLOURS)))
    for label in labels:
        k = numbers[label]
        styles[label] = {
            "color": COLOURS[k % len(COLOURS)],
            "linestyle": DASHES[(k + k // len(MARKERS)) % len(DASHES)],
            "marker": MARKERS[k % len(MARKERS)],
        }
    return styles


def make_lines(panels, resamples, from_step=0):
    """(environment, label) -> steps, seconds, mean return, and its interval, low and high; (S,)

    Steps before `from_step` are left out; UserError if then nothing is left.
    """
    lines = {}
    for env_id, panel in panels.items():
        for label, runs in panel.items():
            steps, seconds, values = align(runs)
            mean = np.nanmean(values, axis=0)
            shown = steps >= from_step
            if not shown.any():
                raise UserError(f"{env_id}, {label} ends before --from-step {from_step}")
            line = steps, seconds, mean, *bootstrap(values, resamples)
            lines[env_id, label] = [part[shown] for part in line]
    return lines


def draw_line(axes, x, mean, low, high, style, label):
    every = max(1, len(x) // 8)
    axes.plot(x, mean, label=label, markevery=every, markersize=4, linewidth=1.5, **style)
    axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def draw_panels(panels, lines, styles, bars, axis):
    """One panel for each environment; axis: "steps" or "time" (of the seeds' mean)."""
    figure, grid = make_grid(len(panels))
    for axes, (env_id, panel) in zip(grid, panels.items(), strict=False):
        for label in (label for label in styles if label in panel):
            steps, seconds, *band = lines[env_id, label]
            x = steps / 1000 if axis == "steps" else seconds / 60
            draw_line(axes, x, *band, styles[label], label)
        low, high = axes.get_ylim()
        for k, (name, value) in enumerate(bars.get(env_id, [])):
            beyond = value - min(max(value, low), high)
            if abs(beyond) > high - low:  # its line would squeeze the curves: say where it is
                name, value = f"{name}: {value:.3g}", high if beyond > 0 else low
            else:
                axes.axhline(value, color="0.55", linewidth=0.8, linestyle=(0, (1 + 2 * k, 2)))
            axes.annotate(
                name,
                (1 - 0.14 * k, value),  # side by side: values may be close
                xycoords=("axes fraction", "data"),
                ha="right",
                va="top" if value == high else "bottom",
                fontsize=7,
                color="0.35",
            )
        axes.set_title(env_id, fontsize=9)
        axes.set_xlabel("environment steps [thousand]" if axis == "steps" else "time [min]")
        axes.set_ylabel("evaluation return")
    finish(figure, grid, len(panels), styles)
    return figure


def draw_across(iqm, styles):
    """Final scores as points with intervals, and the curves, across tasks."""
    tasks, _, result = iqm
    figure, grid = make_grid(3)
    names = list(result)
    for k, label in enumerate(names):
        _, mean, low, high = result[label]["final"]
        style = {**styles[label], "linestyle": "none"}
        grid[0].errorbar(
            mean, k, xerr=[mean - low, high - mean], capsize=3, **style, ecolor=style["color"]
        )
        for axes, axis, unit in ((grid[1], "step", 1), (grid[2], "seconds", 60)):
            x, *lines = result[label][axis]
            draw_line(axes, x / unit, *lines, styles[label], label)
    grid[0].set_yticks(range(len(names)), names)
    grid[0].invert_yaxis()
    labels = ("final score", "part of the steps", "time [min]")
    for axes, label in zip(grid, labels, strict=False):
        axes.set_xlabel(label)
    grid[1].set_ylabel("score")
    grid[1].set_title(f"interquartile mean over {len(tasks)} tasks", fontsize=9)
    finish(figure, grid, 3, {label: styles[label] for label in names})
    return figure


def make_grid(n):
    from matplotlib.figure import Figure

    columns = 2 if n == 4 else min(n, 3)
    rows = -(-n // columns)
    figure = Figure(figsize=(3.6 * columns, 2.7 * rows + 0.6), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).ravel()


def finish(figure, grid, n, styles):
    from matplotlib.lines import Line2D

    for axes in grid[:n]:
        axes.grid(color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    for axes in grid[n:]:
        axes.remove()
    lines = [Line2D([], [], label=label, markersize=5, **style) for label, style in styles.items()]
    widest = 0.7 + 0.07 * max(map(len, styles))  # of an entry [inch], about
    columns = max(1, min(4, int(figure.get_figwidth() / widest)))
    figure.legend(
        handles=lines, loc="outside lower center", ncols=columns, fontsize=8, handlelength=4
    )


def save(figure, path):
    for suffix in (".png", ".svg"):
        # Without the date an unchanged figure is an unchanged file.
        metadata = {"Date": None} if suffix == ".svg" else None
        save_figure(figure, path.with_name(path.name + suffix), dpi=130, metadata=metadata)


# ---- 5. Table ----


ENOUGH = 5  # seeds for an interval; the range of fewer is in the table anyway


def make_table(panels, styles, bars, iqm, resamples):
    """Markdown: final returns with their spread, one row per environment and algorithm."""
    head = ["environment", "algorithm", "final return", "95 % interval", "std", "min", "max"]
    head += ["seeds", "steps", "minutes"]
    rows, interval_at = [], head.index("95 % interval")
    for env_id, panel in panels.items():
        for label in (label for label in styles if label in panel):
            runs = panel[label]
            final = np.array([run.final() for run in runs])
            low, high = bootstrap(final[:, None], resamples)
            interval = f"{low[0]:.1f} to {high[0]:.1f}" if len(runs) >= ENOUGH else "-"
            std = f"{final.std(ddof=1):.1f}" if len(runs) > 1 else "-"
            steps = max(run.step[-1] for run in runs)
            minutes = np.mean([run.seconds[-1] for run in runs]) / 60
            row = [env_id, label, f"{final.mean():.1f}", interval, std, f"{final.min():.1f}"]
            rows.append([*row, f"{final.max():.1f}", len(runs), f"{steps:,.0f}", f"{minutes:.1f}"])
        for name, value in bars.get(env_id, []):
            rows.append([env_id, f"*{name}*", f"{value:.1f}", *["-"] * 7])
    text = "Interval: bootstrap over seeds; std: between seeds. Minutes: from process start.\n"
    if all(row[interval_at] == "-" for row in rows):
        for row in [head, *rows]:
            del row[interval_at]
        text = "Std: between seeds. Minutes: from process start.\n"
    mean = "Final return: mean over seeds of the mean evaluation in the last tenth of each run."
    text = f"{markdown(head, rows)}\n{mean} {text}"
    if iqm:
        tasks, _, result = iqm
        rows = []
        for label, parts in result.items():
            rows.append([label])
            for _, (mean,), (low,), (high,) in (parts["final"], parts["minutes"]):
                rows[-1] += [f"{mean:.3f}", "-" if np.isnan(low) else f"{low:.3f} to {high:.3f}"]
        zero = "random actions"
        if any(random_score(bars, env_id) is None for env_id in tasks):
            zero += " or, where they were not measured, the first evaluation"
        text += f"\nInterquartile mean over {', '.join(tasks)} "
        text += f"(0: {zero}, 1: the best final mean on the task) of the final score and of the "
        text += "score's mean over the minutes that the shortest run of the task took:\n\n"
        head = ["algorithm", "final score", "95 % interval"]
        text += markdown([*head, "mean over minutes", "95 % interval"], rows)
    return text


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def main(args):
    runs = read_runs(args.paths, skip)
    plain = {run.path: run.algorithm for run in runs}
    runs = split_settings(runs, lambda line: print(line, file=sys.stderr))
    if args.env_ids:
        runs = select(runs, args.env_ids, lambda run: {run.env_id})
    if args.algorithms:
        runs = select(runs, args.algorithms, lambda run: {run.algorithm, plain[run.path]})
    runs = runs if args.partial else drop_partial(runs, skip)
    runs = drop_repeated(runs, skip)
    if not runs:
        raise UserError(f"no runs found in {' '.join(args.paths)}")
    if args.collect:
        collect([run for run in runs if not longer_there(run, args.collect)], args.collect)
        return
    bars = read_baselines(args.baselines)
    panels = make_panels(runs)
    styles = make_styles({label for panel in panels.values() for label in panel}, args.algorithms)
    iqm = across_tasks(panels, bars, args.bootstrap) if args.iqm else None
    if iqm and iqm[1]:
        print(f"not in the mean over {len(iqm[0])} tasks: {', '.join(iqm[1])}", file=sys.stderr)
    if args.iqm and not iqm and len(panels) > 1 and len(styles) > 1:
        print(
            "no mean across tasks: no two algorithms share two tasks on which one of them beats "
            "random actions",
            file=sys.stderr,
        )
    out = Path(args.out)
    if not out.name:
        raise UserError(f"--out {args.out} has no file name; try {args.out}/curves")
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = make_lines(panels, args.bootstrap, args.from_step)
    import matplotlib as mpl

    # The same figure gives the same file, and names may have a $ in them.
    with mpl.rc_context({"svg.hashsalt": "curves", "text.parse_math": False}):
        for axis in ("steps", "time"):
            figure = draw_panels(panels, lines, styles, bars, axis)
            save(figure, out.with_name(f"{out.name}-{axis}"))
        if iqm:
            save(draw_across(iqm, styles), out.with_name(f"{out.name}-iqm"))
    table = make_table(panels, styles, bars, iqm, args.bootstrap)
    write_file(out.with_name(f"{out.name}.md"), table.encode())
    print(table, end="")


if __name__ == "__main__":
    run_cli(main, parse_args())
