"""Locomotion with half of the state hidden: our runs beside the published table.

    python -m benchmark.locomotion runs/locomotion     takes in new runs, then makes all files anew
    python -m benchmark.locomotion                     makes them from what is there

Runs are tested and copied as by benchmark.scoreboard, to benchmark/results/locomotion, and
locomotion.png is drawn there. The tables are written into docs/locomotion.md
and docs/locomotion_settings.md.

published.csv has the means of six seeds of arXiv:2405.15384 (RESeL, Luo et al. 2024): its own
agent, the recurrent one of Ni et al. 2022 (MF-RNN), PPO with a GRU, and SAC without memory, each
after 1.5 million steps.
"""

import csv
import math
import statistics

from benchmark.plot import markdown, read_origins
from benchmark.scoreboard import (
    RESULTS,
    ROOT,
    all_rows,
    fill,
    finals,
    of,
    parse_args,
    provenance,
    read_copy,
    save,
    short,
)
from common.cli import run_cli
from common.files import write_file
from envs.table import find

OUT = RESULTS / "locomotion"
PAGE = ROOT / "docs" / "locomotion.md"
SETTINGS = ROOT / "docs" / "locomotion_settings.md"
ROBOTS = ("hopper", "halfcheetah", "walker2d", "ant")
BULLET = [f"{robot}-{observed}-v0" for robot in ROBOTS for observed in ("p", "v")]
FULL = [find(f"{robot}-p-v0").oracle for robot in ROBOTS]  # the same robots with nothing hidden
OURS = {  # of 1.5 million steps: words for it, its color in the figure
    "rsac": ("rsac.py", "C0"),
    "rsac-window": ("rsac.py, windows alone", "C9"),
    "rsac-pink": ("rsac.py, pink noise", "C3"),
    "rtd3": ("rtd3.py", "C1"),
    "rsac-no-memory": ("rsac.py, no memory", "C4"),
    "sac": ("sac.py, no memory", "C7"),
}
FULL_STATE = "sac.py, full state"
PINK = {  # with pink noise and without
    "rsac-pink": "pink noise",
    "rsac-pink-half": "pink noise",
    "rsac": "as in `rsac.py`",
}
SHORT = {  # of 300,000 steps
    "rsac-short-0": "`rsac.py`, windows alone",
    "rsac-short-64": "64 steps before each window",
    "rsac-short-200": "200 steps, the default",
    "rsac-short-quiet": "64 steps, least alpha 0.003",
    "rsac-short-updates": "the same with 0.3 updates per step",
    "rsac-resel-short-64": "64 steps and RESeL's recipe",
}


def words(rows, env_id, algorithm):
    """The final return of each seed in words; a dash without runs."""
    return ", ".join(map(short, finals(rows, env_id, algorithm))) or "-"


def beside_published(rows, published):
    """Markdown: a column for each task of pybullet, our agents above the published ones."""
    lines = []
    for name, (agent, _) in OURS.items():
        if any(of(rows, task, name) for task in BULLET):
            lines.append([agent, *(words(rows, task, name) for task in BULLET)])
    lines.append([FULL_STATE, *(words(rows, find(task).oracle, "sac") for task in BULLET)])
    theirs = {line["env_id"]: line for line in published}
    for agent in list(published[0])[1:]:
        lines.append([f"{agent}, published", *(theirs[task][agent] for task in BULLET)])
    return markdown(["agent", *(task.removesuffix("-v0") for task in BULLET)], lines)


def recipe(rows):
    """Markdown: windows alone, the defaults and the recipe of RESeL, where two were run."""
    lines = []
    for task in BULLET:
        its = [words(rows, task, name) for name in SHORT]
        if sum(cell != "-" for cell in its) >= 2:
            lines.append([f"`{task}`", *its])
    return markdown(["task", *SHORT.values()], lines) if lines else "Not run yet.\n"


def pink(rows, out):
    """Markdown: some evaluations of each run with pink noise, and of those without beside it."""
    steps = range(250_000, 1_500_001, 250_000)
    lines = []
    for task in BULLET:
        if not any(of(rows, task, name) for name in PINK if name != "rsac"):
            continue
        for name, noise in PINK.items():
            for row in of(rows, task, name):
                curve = read_copy(row, out)
                then = dict(zip(curve["global_step"], curve["eval_return_mean"], strict=True))
                cells = [short(then[step]) if step in then else "-" for step in steps]
                lines.append([f"`{task}`", noise, row["seed"], *cells])
    head = ["task", "noise", "seed", *(f"step {step:,}" for step in steps)]
    return markdown(head, lines) if lines else "Not run yet.\n"


def same_minutes(rows, out):
    """Markdown: runs of sac.py, and what rsac.py returned when it had learned as long."""
    lines = []
    for task in BULLET:
        curves = [read_copy(row, out) for row in of(rows, task, "rsac")]
        for env_id in (task, find(task).oracle):
            if curves and (group := of(rows, env_id, "sac")):
                minutes = statistics.median(float(row["minutes"]) for row in group)
                then = [curve["eval_return_mean"][done(curve, minutes)] for curve in curves]
                line = [f"`{task}`", f"`{env_id}`", short(minutes), words(rows, env_id, "sac")]
                lines.append([*line, ", ".join(map(short, then)), words(rows, task, "rsac")])
    head = ["task", "`sac.py` ran on", "its minutes", "its return"]
    head += ["`rsac.py` after these minutes", "`rsac.py` at the end"]
    return markdown(head, lines) if lines else "Not run yet.\n"


def done(curve, minutes):
    """Number of the last evaluation that a run had made after so many minutes."""
    return max(0, sum(curve["wall_seconds"] <= 60 * minutes) - 1)


def runs(rows, env_ids, out):
    """Markdown: what each group of seeds took, and how far it fell in the last fifth."""
    lines = []
    for env_id in env_ids:
        for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
            if group := of(rows, env_id, algorithm):
                minutes = statistics.median(float(row["minutes"]) for row in group)
                worst = min(float(row["worst"]) for row in group)
                steps = max(int(row["steps"]) for row in group)
                line = [f"`{env_id}`", f"`{algorithm}`", words(rows, env_id, algorithm)]
                line += [short(worst), f"{steps:,}", ", ".join(row["seed"] for row in group)]
                heads = [x for row in group for x in read_copy(row, out, read_origins)]
                on = {origin.get("machine", "").partition(", ")[2] for origin in heads}
                lines.append([*line, f"{minutes:.0f}", " or ".join(sorted(on)) or "-"])
    head = ["task", "run", "final return of each seed", "worst late", "steps", "seeds", "minutes"]
    head.append("machine")
    return markdown(head, lines) if lines else "Not run yet.\n"


def draw(rows, published, out):
    """The tasks of pybullet that were run: a line for each seed of ours, the published means."""
    from matplotlib import pyplot as plt

    tasks = [task for task in BULLET if any(of(rows, task, name) for name in OURS)]
    columns = max(2, min(4, len(tasks)))
    lines = max(1, math.ceil(len(tasks) / columns))
    size = (3 * columns, 2.2 * lines + 0.6)
    figure, grid = plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axes in grid.flat[len(tasks) :]:
        axes.set_axis_off()
    theirs = {line["env_id"]: line for line in published}
    for axes, task in zip(grid.flat, tasks, strict=False):
        axes.set_title(task, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.set_xlabel("million env steps", fontsize=8)
        shown = [(task, name, color, "-") for name, (_, color) in OURS.items()]
        for env_id, name, color, style in [*shown, (find(task).oracle, "sac", "C7", "--")]:
            for row in of(rows, env_id, name):
                curve = read_copy(row, out)
                steps = curve["global_step"] / 1e6
                axes.plot(steps, curve["eval_return_mean"], color, ls=style, lw=0.9)
        axes.axhline(1000, color="0.6", ls=":", lw=0.9)
        for name, mark in (("RESeL", "ko"), ("MF-RNN", "kx")):
            axes.plot(1.5, float(theirs[task][name]), mark, ms=5, clip_on=False)
    names = [name for name in OURS if any(of(rows, task, name) for task in tasks)]
    marks = [(OURS[name][1], "-", "", f"{OURS[name][0]}, one line a seed") for name in names]
    if any(of(rows, find(task).oracle, "sac") for task in tasks):
        marks.append(("C7", "--", "", f"{FULL_STATE}, one line a seed"))
    marks += [("k", "", "o", "RESeL, mean of six"), ("k", "", "x", "MF-RNN, mean of six")]
    marks.append(("0.6", ":", "", "staying alive: 1 per step"))
    handles = [plt.Line2D([], [], color=c, ls=ls, marker=m, label=t) for c, ls, m, t in marks]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )
    save(figure, out / "locomotion.png")


def main(args):
    rows = all_rows(args)
    with open(OUT / "published.csv", newline="") as file:
        published = list(csv.DictReader(file))
    write_file(args.out / "provenance.csv", provenance(rows, args.out).encode())
    draw(rows, published, args.out)
    mujoco = [row["env_id"] for row in rows if row["env_id"].startswith("mujoco-")]
    tables = [
        (PAGE, "bullet", beside_published(rows, published)),
        (SETTINGS, "pink", pink(rows, args.out)),
        (SETTINGS, "recipe", recipe(rows)),
        (PAGE, "minutes", same_minutes(rows, args.out)),
        (SETTINGS, "runs", runs(rows, [*BULLET, *FULL], args.out)),
        (PAGE, "mujoco", runs(rows, dict.fromkeys(mujoco), args.out)),
    ]
    for page, name, text in tables:
        if args.out == OUT:
            fill(page, text, name)
        print(text)


if __name__ == "__main__":
    run_cli(main, parse_args(None, __doc__, OUT))
