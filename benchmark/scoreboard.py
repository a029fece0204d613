"""The scoreboard: how far each run got on the way from no memory to the full state.

    python -m benchmark.scoreboard runs/results --out mine    a scoreboard of your own
    python -m benchmark.scoreboard runs/results               takes new runs into ours
    python -m benchmark.scoreboard                            makes the files from what is there

Each finished run in the folders is tested once on 100 fresh episodes (--evaluate) and its curve is
copied. In benchmark/results, or --out: scoreboard.csv, a row for each run; provenance.csv, where
each comes from; curves/; scoreboard.png, the figure. Without --out, tables are written into
README.md and docs/results.md.

The floor of a task is the best known without memory: sac.py, rsac.py without its memory, or a
controller of benchmark.baselines. The bound is the best of sac.py on the full state; for
push-r-bump and the continuous cart-pole, where few of our runs of it reach that, it is the largest
possible return. Of runs of the same length the mean counts. A seed has solved a task if its final
return is at least 95 % of the way from floor to bound (pendulums: -200 and -220) and no evaluation
of the last fifth of its run is below 80 %.
"""

import csv
import io
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmark import (
    ROOT,
    child_error,
    find_script,
    locked,
    read_curve,
    run_name,
    save_figure,
)
from benchmark.plot import collect, markdown, read_baselines, read_origins, read_runs, skip
from common.cli import Parser, integer, run_cli
from common.errors import RunError, UserError
from common.files import write_csv, write_file
from envs.table import find

RESULTS, TABLE = ROOT / "benchmark" / "results", "scoreboard.csv"
TASKS = (
    "pendulum-p-v0",
    "pendulum-va-v0",
    "dmc-cartpole-balance-p-v0",
    "dmc-cartpole-balance-va-v0",
    "dmc-cartpole-swingup-p-v0",
    "dmc-cartpole-swingup-va-v0",
    "reacher-pomdp-v0",
    "water-maze-simple-pomdp-v0",
    "bumps-normal-test-v0",
    "pbc-bumps-normal-pomdp-v0",
    "car-p-v0",
    "cartpole-continuous-p-v0",
)
AGREED = {"pendulum-p-v0": -200, "pendulum-va-v0": -220}  # final return that counts as solved
LARGEST = {  # return that is possible: success each time, 1 for each step
    "bumps-normal-test-v0": 1.0,
    "pbc-bumps-normal-pomdp-v0": 1.0,
    "cartpole-continuous-p-v0": 1000.0,
}
SHOWN = {"rsac": "C0"}  # in the figure and in the README: the color
FAMILY = {name: f"`{name}`" for name in ("rsac_sharing", "rtd3", "rdpg")}
COLUMNS = ("env_id", "algorithm", "seed", "final", "success_rate", "worst", "steps", "minutes")
STACKED = {  # sac.py on stacked frames of the task
    "pendulum-p-v0": "pendulum-p-concat5-v0",
    "pendulum-va-v0": "pendulum-va-concat10-v0",
    "dmc-cartpole-balance-p-v0": "dmc-cartpole-balance-p-concat5-v0",
    "dmc-cartpole-balance-va-v0": "dmc-cartpole-balance-va-concat10-v0",
    "dmc-cartpole-swingup-p-v0": "dmc-cartpole-swingup-p-concat5-v0",
    "dmc-cartpole-swingup-va-v0": "dmc-cartpole-swingup-va-concat10-v0",
    "cartpole-continuous-p-v0": "cartpole-continuous-p-concat5-v0",
}
WITHOUT = "rsac-no-memory"
DEFAULTS = "sac-defaults"  # sac.py with its own default arguments; "sac" has those of rsac.py
FRAMES = {"stacked": "sac", "stacked-defaults": DEFAULTS}  # on STACKED, by which runs
USUAL = {
    WITHOUT: "`rsac.py` without its memory",
    "stacked": "`sac.py`, 5 or 10 frames",
    "stacked-defaults": "the same, its own defaults",
    "recurrent_ppo": "recurrent PPO",
}
TEST_SEED, TEST_EPISODES = 1000, 100  # of the fresh episodes
TESTED = "test.txt"  # in the folder of a script that saves no checkpoint
SOLVED, DIP = 0.95, 0.8  # of the way from floor to bound


def parse_args(argv=None, text=__doc__, out=RESULTS):
    parser = Parser(text)
    parser.add_argument("folders", nargs="*", help="folders with runs <env>__<script>__<seed>")
    parser.add_argument("--out", type=Path, default=out, help="folder of the results")
    parser.add_argument(
        "--episodes", type=integer(1), default=TEST_EPISODES, help="fresh ones of a run"
    )
    return parser.parse_args(argv)


# ---- Runs ----


def evaluate_run(folder, episodes):
    """A row of scoreboard.csv for one finished run folder."""
    env_id, algorithm, seed = folder.name.split("__")[:3]
    curve = read_curve(folder / "progress.csv")
    last_fifth = curve["global_step"] >= 0.8 * curve["global_step"][-1]
    words = fresh_episodes(folder, episodes).split()
    rate = words[words.index("success_rate") + 1] if "success_rate" in words else ""
    return {
        "env_id": env_id,
        "algorithm": algorithm,
        "seed": seed,
        "final": words[words.index("return_mean") + 1],
        "success_rate": rate,
        "worst": f"{curve['eval_return_mean'][last_fifth].min():.6g}",
        "steps": str(int(curve["global_step"][-1])),
        "minutes": f"{curve['wall_seconds'][-1] / 60:.1f}",
    }


def fresh_episodes(folder, episodes):
    """What `--evaluate` prints for fresh episodes, or benchmark/recurrent_ppo.py wrote of them."""
    if (folder / TESTED).exists():
        return (folder / TESTED).read_text()
    from common.checkpoint import load_checkpoint

    name = Path(load_checkpoint(folder, script=None)["script"]).stem  # no path to other code
    script = find_script(name)
    command = [sys.executable, script, "--evaluate", folder, "--seed", TEST_SEED]
    command += ["--eval-episodes", episodes]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise child_error(f"{script} --evaluate {folder}", done.returncode, done.stderr)
    return done.stdout


def finished(folder):
    """Whether a run has come to the end of its --total-steps and can be tested, or was."""
    if not any((folder / name).exists() for name in ("checkpoint.pt", TESTED)):
        return False
    args = folder / "args.json"
    total = json.loads(args.read_text())["total_steps"] if args.exists() else 0
    return last_step(folder) >= total


def last_step(folder):
    return read_curve(folder / "progress.csv")["global_step"][-1]


def is_copy(folder, copy):
    """Whether a collected curve is that of a run folder."""
    if not copy.exists():
        return False
    last = [read_curve(path)["eval_return_mean"][-1] for path in (copy, folder / "progress.csv")]
    return f"{last[0]:.5g}" == f"{last[1]:.5g}"


def take_in(folders, out, episodes):
    """Adds the new runs in `folders` to out/scoreboard.csv and their curves to out/curves.

    A run that has become longer since replaces its row.
    """
    known = by_run(read_rows(out / TABLE))
    for path in map(Path, folders):
        if not path.is_dir():
            raise UserError(f"there is no folder {path}")
        found = sorted(file.parent for file in path.glob("*__*__*/progress.csv"))
        if not found:
            raise UserError(f"{path} has no folders of runs, such as pendulum-p-v0__rsac__0")
        for folder in found:
            key = tuple(folder.name.split("__")[:3])
            if not key[2].isdigit():
                continue
            try:
                if key in known and last_step(folder) <= int(known[key]["steps"]):
                    if not is_copy(folder, curve_of(known[key], out)):
                        print(f"kept another run, not {folder}; see --out", file=sys.stderr)
                    continue
                if not finished(folder):
                    print(f"not finished: {folder}", file=sys.stderr)
                    continue
                row = evaluate_run(folder, episodes)
                runs = read_runs([folder / "progress.csv"], skip)
            except (ValueError, KeyError, TypeError, RunError) as error:
                skip(folder, error)
                continue
            if not runs:
                continue
            collect(runs, out / "curves")
            with locked(out):  # other processes may write, too, and may have written since
                known = by_run(read_rows(out / TABLE)) | {key: row}
                rows = sorted(known.values(), key=lambda r: (*list(r.values())[:2], int(r["seed"])))
                write_csv(out / TABLE, rows)
            print(*row.values())


def by_run(rows):
    """(environment, algorithm, seed) -> row"""
    return {(row["env_id"], row["algorithm"], row["seed"]): row for row in rows}


def read_rows(path):
    """The rows of a scoreboard.csv, none if it is not there; UserError if it is something else."""
    if not path.exists():
        return []
    with open(path, newline="", errors="replace") as file:
        table = csv.DictReader(file)
        names, rows = table.fieldnames, list(table)
    try:
        if names != list(COLUMNS):
            raise ValueError
        for row in rows:
            int(row["seed"]), int(row["steps"]), float(row["success_rate"] or 0)
            float(row["final"]), float(row["worst"]), float(row["minutes"])
    except (ValueError, TypeError) as error:
        words = f"{path} is not a table of benchmark.scoreboard; choose another --out"
        raise UserError(words) from error
    return rows


# ---- Floor, bound, solved ----


def of(rows, env_id, algorithm):
    """The rows of one task and algorithm that have the most steps: a shorter one is a trial."""
    group = [row for row in rows if (row["env_id"], row["algorithm"]) == (env_id, algorithm)]
    most = max((int(row["steps"]) for row in group), default=0)
    return [row for row in group if int(row["steps"]) == most]


def finals(rows, env_id, algorithm):
    return [float(row["final"]) for row in of(rows, env_id, algorithm)]


def best(rows, env_id, algorithm):
    """The highest mean final return of runs of the same length, None without runs."""
    groups = {}
    for row in rows:
        if (row["env_id"], row["algorithm"]) == (env_id, algorithm):
            groups.setdefault(row["steps"], []).append(float(row["final"]))
    return max(map(statistics.fmean, groups.values()), default=None)


def floor_of(rows, controllers, env_id):
    """(return, by whom) of the best without memory; None if nothing was measured."""
    known = dict(controllers.get(env_id, {}))
    for name in ("sac", DEFAULTS, WITHOUT):
        if (value := best(rows, env_id, name)) is not None:
            known[name] = value
    return max(((value, name) for name, value in known.items()), default=None)


def bound_of(rows, env_id):
    return LARGEST.get(env_id, best(rows, find(env_id).oracle, "sac"))


def is_solved(row, env_id, floor, bound):
    needed = AGREED.get(env_id, floor + SOLVED * (bound - floor))
    return float(row["final"]) >= needed and float(row["worst"]) >= floor + DIP * (bound - floor)


def summary(rows, controllers):
    """One dict for each task and script that was run on it, in the order of the table."""
    lines = []
    for env_id in TASKS:
        floor, bound = floor_of(rows, controllers, env_id), bound_of(rows, env_id)
        for algorithm in (*SHOWN, *FAMILY, *USUAL):
            stacked = algorithm in FRAMES
            runs = (STACKED.get(env_id), FRAMES[algorithm]) if stacked else (env_id, algorithm)
            group = of(rows, *runs)
            if not group:
                continue
            values = [float(row["final"]) for row in group]
            line = {"env_id": env_id, "algorithm": algorithm, "finals": values}
            line |= {"floor": floor, "bound": bound, "share": None, "solved": None}
            line["worst"] = min(float(row["worst"]) for row in group)
            line["steps"] = int(group[0]["steps"])
            line["minutes"] = statistics.median(float(row["minutes"]) for row in group)
            rates = [float(row["success_rate"]) for row in group if row["success_rate"]]
            line["success"] = statistics.fmean(rates) if rates else None
            if floor and bound is not None and bound > floor[0]:
                line["share"] = (statistics.fmean(values) - floor[0]) / (bound - floor[0])
                line["solved"] = sum(is_solved(row, env_id, floor[0], bound) for row in group)
            lines.append(line)
    return lines


# ---- What is written ----


def short(value):
    """Three digits, or all before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells(line):
    """The numbers of a task and script as words, a dash where one is not known."""
    known = line["solved"] is not None  # needs a floor, and a bound above it
    return {
        "floor": short(line["floor"][0]) if line["floor"] else "-",
        "bound": "-" if line["bound"] is None else short(line["bound"]),
        "share": f"{100 * line['share']:.0f} %" if known else "-",
        "solved": f"{line['solved']} of {len(line['finals'])}" if known else "-",
        "finals": ", ".join(short(value) for value in line["finals"]),
        "steps": f"{line['steps']:,}",
    }


def table(lines):
    """Markdown: one line for each task of SHOWN's scripts, finals in the order of the seeds."""
    head = ["task", "floor", "full state", "final return of each seed", "worst late"]
    head += ["solved (of the way)", "steps", "minutes"]
    rows = []
    for line in (line for line in lines if line["algorithm"] in SHOWN):
        its = cells(line)
        floor = f"{its['floor']} ({line['floor'][1]})" if line["floor"] else "-"
        success = "" if line["success"] is None else f"; success {line['success']:.2f}"
        solved = "-" if line["solved"] is None else f"{its['solved']} ({its['share']})"
        row = [f"`{line['env_id']}`", floor, its["bound"], its["finals"] + success]
        row += [short(line["worst"]), solved, its["steps"], f"{line['minutes']:.1f}"]
        rows.append(row)
    return markdown(head, rows)


def others(lines, names):
    """Markdown: finals of each of `names`, and how many seeds solved the task.

    names: algorithm -> head of its column.
    """
    known = {(line["env_id"], line["algorithm"]): cells(line) for line in lines}
    rows = []
    for env_id in TASKS:
        its = [known.get((env_id, name)) for name in names]
        if any(its):
            words = ["-" if x is None else f"{x['finals']} ({x['solved']})" for x in its]
            rows.append([f"`{env_id}`", *words])
    return markdown(["task", *names.values()], rows) if rows else "Not run yet.\n"


def headline(lines):
    """Markdown for the README: what the scripts of SHOWN reach, one line a task."""
    head = ["task", "without memory", *(f"`{name}`" for name in SHOWN), "full state", "minutes"]
    known = {(line["env_id"], line["algorithm"]): line for line in lines}
    rows = []
    for env_id in TASKS:
        its = [known[env_id, name] for name in SHOWN if (env_id, name) in known]
        if its:
            values = [known.get((env_id, name)) for name in SHOWN]
            values = ["-" if line is None else cells(line)["finals"] for line in values]
            minutes = f"{max(line['minutes'] for line in its):.0f}"
            words = [cells(its[0])["floor"], *values, cells(its[0])["bound"], minutes]
            rows.append([f"`{env_id}`", *words])
    return markdown(head, rows)


def fill(path, text, name="scoreboard"):
    """Puts the text between the two comment lines of a page that mark its place."""
    mark, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, begun, rest = path.read_text().partition(mark)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise UserError(f"{path} has no lines {mark.strip()} and {end.strip()}")
    write_file(path, "".join((before, mark, "\n", text, "\n", end, after)).encode())


def provenance(rows, out):
    """CSV: commit, time, machine and command of each run, from its curve's head."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("run", "commit", "started", "machine", "command"))
    for row in rows:
        for origin in read_copy(row, out, read_origins):
            commit = (origin.get("commit") or "unknown")[:12]
            commit += " with changes" if origin.get("clean") is False else ""
            machine = f"{origin.get('machine')}, torch {origin.get('torch')}"
            name, started = curve_of(row, out).stem, origin.get("started")
            writer.writerow((name, commit, started, machine, origin.get("command")))
    return text.getvalue()


def curve_of(row, out):
    """The file with the curve of a row."""
    return out / "curves" / f"{run_name(row['env_id'], row['algorithm'], row['seed'])}.csv"


def read_copy(row, out, read=read_curve):
    """The curve of a row, or what else `read` finds in its file. Raises UserError if that is
    missing or damaged."""
    path = curve_of(row, out)
    try:
        return read(path)
    except (OSError, ValueError) as error:
        table = out / TABLE
        raise UserError(
            f"cannot read {path}: {error}; delete its row in {table} and take the run in again"
        ) from error


def draw(lines, rows, out):
    """A grid of tasks: one line for each seed of SHOWN's scripts, between floor and bound."""
    from matplotlib import pyplot as plt

    known = {line["env_id"]: line for line in lines if line["algorithm"] in SHOWN}
    figure, grid = plt.subplots(3, 4, figsize=(12, 7.5), layout="constrained")
    for axes, env_id in zip(grid.flat, TASKS, strict=True):
        axes.set_title(env_id, fontsize=9)
        axes.tick_params(labelsize=8)
        line = known.get(env_id)
        if line is None:
            axes.text(0.5, 0.5, "not run yet", ha="center", transform=axes.transAxes, color="grey")
            continue
        for row in rows:
            color = SHOWN.get(row["algorithm"])
            if row["env_id"] != env_id or color is None:
                continue
            curve = read_copy(row, out)
            axes.plot(curve["global_step"] / 1000, curve["eval_return_mean"], color=color, lw=0.9)
        if line["floor"] is not None:
            axes.axhline(line["floor"][0], color="C7", ls="--", lw=1)
        if line["bound"] is not None:
            axes.axhline(line["bound"], color="C2", ls="--", lw=1)
        if line["share"] is not None:  # what is far below the floor would squeeze the rest
            least = line["floor"][0] - 5 * (line["bound"] - line["floor"][0])
            axes.set_ylim(bottom=max(axes.get_ylim()[0], least))
    for axes in grid[-1]:
        axes.set_xlabel("thousand env steps", fontsize=8)
    styles = [(color, "-", f"{name}.py, one line a seed") for name, color in SHOWN.items()]
    styles += [("C7", "--", "best without memory"), ("C2", "--", "full state")]
    handles = [plt.Line2D([], [], color=c, ls=ls, label=text) for c, ls, text in styles]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    save(figure, out / "scoreboard.png")


def save(figure, path):
    """Writes a figure as a PNG, completely or not at all, and closes it."""
    from matplotlib import pyplot as plt

    save_figure(figure, path, dpi=110)
    plt.close(figure)


def all_rows(args):
    """The rows of scoreboard.csv, with those of new runs, in their order."""
    take_in(args.folders, args.out, args.episodes)
    if not (rows := read_rows(args.out / TABLE)):
        raise UserError("there are no runs yet; name a folder with finished ones")
    return rows


def main(args):
    all_rows(args)
    with locked(args.out):
        rows = read_rows(args.out / TABLE)  # with those of other processes
        lines = summary(rows, read_baselines(RESULTS / "baselines.csv"))
        write_file(args.out / "provenance.csv", provenance(rows, args.out).encode())
        draw(lines, rows, args.out)
        if args.out == RESULTS:
            fill(ROOT / "README.md", headline(lines))
            fill(ROOT / "docs" / "results.md", table(lines))
            fill(ROOT / "docs" / "results.md", others(lines, FAMILY), "family")
            fill(ROOT / "docs" / "results.md", others(lines, USUAL), "usual")
    print(table(lines), others(lines, FAMILY | USUAL), sep="\n")


if __name__ == "__main__":
    run_cli(main, parse_args())
