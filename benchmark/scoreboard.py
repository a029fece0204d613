"""The scoreboard: what each finished run reached, as one table, and where each number comes from.

    python -m benchmark.scoreboard runs/results --out docs/results/scoreboard

Every run is tested on 100 fresh episodes (--evaluate). Writes OUT.md, the table, and OUT.csv, a row
for each run. Runs already in OUT.csv are not tested again.
"""

import csv
import statistics
import subprocess
import sys
from pathlib import Path

from benchmark import find_script, read_curve
from common.cli import Parser, integer, run_cli
from common.errors import UserError

COLUMNS = ("env_id", "algorithm", "seed", "final", "worst", "steps", "minutes", "commit")
TEST_SEED = 1000  # of the fresh episodes


def parse_args(argv=None):
    parser = Parser(__doc__)
    parser.prog = "python -m benchmark.scoreboard"
    parser.add_argument("folder", help="folder with run folders named <env>__<script>__<seed>")
    parser.add_argument("--out", required=True, help="path and first part of the two files")
    parser.add_argument("--episodes", type=integer(1), default=100, help="test episodes of a run")
    return parser.parse_args(argv)


def evaluate_run(folder, episodes):
    """A row of OUT.csv for one finished run folder."""
    env_id, algorithm, seed = folder.name.split("__")[:3]
    curve = read_curve(folder / "progress.csv")
    last_fifth = curve["global_step"] >= 0.8 * curve["global_step"][-1]
    command = [sys.executable, find_script(algorithm), "--evaluate", folder, "--seed", TEST_SEED]
    command += ["--eval-episodes", episodes]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise UserError(done.stderr.strip().splitlines()[-1])
    words = done.stdout.split()
    return {
        "env_id": env_id,
        "algorithm": algorithm,
        "seed": seed,
        "final": words[words.index("return_mean") + 1],
        "worst": f"{curve['eval_return_mean'][last_fifth].min():.6g}",
        "steps": int(curve["global_step"][-1]),
        "minutes": f"{curve['wall_seconds'][-1] / 60:.1f}",
        "commit": commit(),
    }


def commit():
    """The commit of this checkout, marked where files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def table(rows):
    """Markdown: one line for each environment and algorithm, seeds in order."""
    lines = [
        "| task | script | final return of each seed | worst late evaluation | steps | minutes |",
        "|---|---|---|---|---|---|",
    ]
    groups = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        groups.setdefault((row["env_id"], row["algorithm"]), []).append(row)
    for (env_id, algorithm), group in sorted(groups.items()):
        finals = ", ".join(f"{float(row['final']):.4g}" for row in group)
        worst = min(float(row["worst"]) for row in group)
        minutes = statistics.median(float(row["minutes"]) for row in group)
        steps = f"{int(group[0]['steps']):,}"
        cells = (f"`{env_id}`", f"`{algorithm}`", finals, f"{worst:.4g}", steps, f"{minutes:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(args):
    out = Path(args.out)
    rows = []
    if out.with_suffix(".csv").exists():
        with open(out.with_suffix(".csv"), newline="") as file:
            rows = list(csv.DictReader(file))
    known = {(row["env_id"], row["algorithm"], row["seed"]) for row in rows}
    folders = sorted(path.parent for path in Path(args.folder).glob("*__*__*/progress.csv"))
    if not folders:
        raise UserError(f"{args.folder} has no run folders")
    for folder in folders:
        if tuple(folder.name.split("__")[:3]) not in known:
            rows.append(evaluate_run(folder, args.episodes))
            print(*rows[-1].values())
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: tuple(map(str, row.values()))))
    out.with_suffix(".md").write_text(table(rows))


if __name__ == "__main__":
    run_cli(main, parse_args())
