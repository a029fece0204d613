"""Searches for good arguments of a script on one environment, with Optuna. Docs: docs/tuning.md

    python -m benchmark.tune --script rsac --env-id pendulum-va-v0 --trials 30 \\
        --space benchmark/spaces/rsac.txt --seeds 0 1 -- --total-steps 20000
"""

import fcntl
import shlex
import statistics
import sys
import time
import warnings
import zlib
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from benchmark import check_package, final_return, find_script, save_figure, split_argv, sweep
from common.cli import SEED, Parser, integer, run_cli
from common.errors import UserError
from common.files import file_name


def parse_args(argv=None):
    own, options = split_argv(argv)
    parser = Parser(__doc__)
    parser.usage = "%(prog)s [options] [-- arguments of every run]"
    add = parser.add_argument
    add("--script", required=True, metavar="NAME", help="such as rsac, or the path of a file")
    add("--env-id", required=True, metavar="ID", help="environment")
    add("--space", required=True, metavar="FILE", help="what to search, see benchmark/spaces/")
    add("--trials", type=integer(1), default=30, help="settings to try in all")
    add("--seeds", nargs="+", type=SEED, default=[0, 1], metavar="N", help="runs of each setting")
    add("--threads", type=integer(1), default=1, help="threads of each run")
    add("--prune-after", type=integer(0), default=5000, help="no trial is stopped before this step")
    add("--log-dir", help="where everything goes; tune/<env>__<script> if not set")
    return parser.parse_args(own, Namespace(options=options))


def read_space(path):
    """A file of lines `--option KIND VALUES` as a dict of Optuna's distributions."""
    from optuna.distributions import CategoricalDistribution as Choice
    from optuna.distributions import FloatDistribution as Number

    space, log = {}, {"float": False, "log": True}
    for line in Path(path).read_text(errors="replace").splitlines():
        try:
            if words := shlex.split(line, comments=True):
                option, kind, *values = words
                numbers = [float(value) for value in values if kind != "choice"]
                space[option] = Number(*numbers, log=log[kind]) if numbers else Choice(values)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: '{line}' is no `--option KIND VALUES`: {error}") from error
    if not space:
        raise UserError(f"{path} has no line `--option KIND VALUES`")
    return space


def open_study(args, space):
    """The study in `args.log_dir`, and a lock that each of its workers holds."""
    import optuna
    from sqlalchemy.exc import DatabaseError  # of SQLite, which Optuna writes with it

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    Path(args.log_dir).mkdir(parents=True, exist_ok=True)
    lock, dead = open(f"{args.log_dir}/lock", "w"), [optuna.trial.TrialState.RUNNING]  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # another worker, to whom trials that are running may belong
        fcntl.flock(lock, fcntl.LOCK_SH)
        dead = []
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=args.prune_after)
    how = {"direction": "maximize", "pruner": pruner, "load_if_exists": True, "study_name": "tune"}
    try:
        study = optuna.create_study(storage=f"sqlite:///{args.log_dir}/study.db", **how)
    except DatabaseError as error:
        where = f"{args.log_dir}/study.db"
        raise UserError(f"cannot read {where}: {error.orig}; use another --log-dir") from error
    asked = [args.script, args.env_id, args.seeds, args.options, str(sorted(space.items()))]
    if study.user_attrs.get("asked", asked) != asked:
        raise UserError(f"{args.log_dir} has the search of another command; use another --log-dir")
    study.set_user_attr("asked", asked)
    for trial in study.get_trials(states=dead):  # its worker was killed
        if trial.distributions == space:  # else the space was wrong, and is corrected now
            study.enqueue_trial(trial.params)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return study, lock


def words_of(params):
    """A setting as words of a command line."""
    pairs = [(name, f"{x:.6g}" if isinstance(x, float) else str(x)) for name, x in params.items()]
    return [word for name, text in pairs for word in [name, *text.split()]]


def play(args, trial):
    """The mean final return of a setting over all seeds, None if it was cut short or failed."""
    words = [*args.options, *words_of(trial.params)]
    tag = f"{zlib.crc32(shlex.join(words).encode()):08x}"  # the same setting has the same runs
    where = ["--env-ids", args.env_id, "--tag", tag, "--log-dir", args.log_dir]
    where += ["--scripts", args.script, "--seeds", *map(str, args.seeds)]
    where += ["--threads", str(args.threads)]
    runs = sweep.make_runs(sweep.parse_args([*where, "--", *words]))
    pool, reported = sweep.LocalPool(runs, len(runs)), 0
    try:
        while pool.waiting or pool.running:
            time.sleep(0.2)
            ended = pool.poll()
            curves = [run.curve() or {"global_step": [], "eval_return_mean": []} for run in runs]
            for k in range(reported, min(len(x["global_step"]) for x in curves)):
                mean = statistics.fmean(x["eval_return_mean"][k] for x in curves)
                trial.report(mean, int(curves[0]["global_step"][k]))
                reported = k + 1
            for run in [run for run, code in ended if code]:
                last = f"{run.log}: {' '.join(sweep.last_lines(run.log, 1))}"
                if (run, 2) in ended:  # of the command line
                    raise UserError(last)
                print(last, file=sys.stderr)
                return None
            if pool.running and trial.should_prune():
                return None
    finally:
        pool.stop()
    return statistics.fmean(final_return(x["global_step"], x["eval_return_mean"]) for x in curves)


def main(args):
    check_package("optuna", "requirements-tune.txt")
    args.script, space = str(find_script(args.script)), read_space(args.space)
    args.log_dir = args.log_dir or f"tune/{file_name(args.env_id)}__{Path(args.script).stem}"
    study, lock = open_study(args, space)
    from matplotlib import pyplot
    from optuna.trial import TrialState as State
    from optuna.visualization import matplotlib as plots

    sweep.handle_signals()  # a KeyboardInterrupt: `play` stops its runs, which save
    while len(study.get_trials(states=(State.COMPLETE, State.PRUNED, State.RUNNING))) < args.trials:
        trial = study.ask(space)
        try:
            value = play(args, trial)
        except UserError as error:
            if not study.get_trials(states=(State.COMPLETE, State.PRUNED)):
                # The first setting: the command is wrong. Without a study it can be corrected.
                with suppress(BlockingIOError):  # another worker has the study, too
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    Path(args.log_dir, "study.db").unlink()
                raise
            print(error, file=sys.stderr)
            value = None
        study.tell(trial, value, State.PRUNED if value is None else State.COMPLETE)
        result = "cut short" if value is None else f"{value:.1f}"
        print(f"trial {trial.number}: {result}, {shlex.join(words_of(trial.params))}", flush=True)
    if not study.get_trials(states=[State.COMPLETE]):
        raise UserError(f"no trial finished; see {args.log_dir}/logs")
    best = study.best_trial
    for name in ("optimization_history", "intermediate_values", "param_importances", "slice"):
        getattr(plots, f"plot_{name}")(study)
        save_figure(pyplot.gcf(), Path(args.log_dir, f"{name}.png"), bbox_inches="tight")
    print(f"best: trial {best.number}, {best.value:.1f}; plots are in {args.log_dir}")
    found = ["--env-id", args.env_id, *args.options, *words_of(best.params)]
    print(shlex.join(["python", args.script, *found]))
    return 0


if __name__ == "__main__":
    run_cli(main, parse_args())
