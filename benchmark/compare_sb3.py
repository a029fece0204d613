"""Learning curves of Stable-Baselines3 beside ours: same hyperparameters, same evaluations.

    python -m benchmark.compare_sb3 --env-id Pendulum-v1 --total-steps 10000 --seeds 0 1 2 3 4
    python -m benchmark.plot runs/compare_sb3 --out docs/_static/sb3

For each script and seed, trains ours in a process of its own and Stable-Baselines3 here, both with
the script's default arguments, and leaves a run folder with a progress.csv for each:
<env>__sac__<seed> and <env>__sb3-sac__<seed>. Runs that are complete are not repeated. The table at
the end has mean and standard deviation over seeds of the final return, which is the mean of the
last tenth of the evaluations, and the difference of the means with its 95 % interval, for groups of
unequal variance (Welch 1947). An interval with 0 in it shows no difference.
"""

import importlib
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmark import (
    check_env_id,
    check_package,
    child_error,
    final_return,
    find_script,
    machine,
    move_aside,
    read_curve,
    run_name,
    sweep,
)
from common.cli import SEED, Parser, integer, run_cli
from common.errors import UserError

SCRIPTS = ("ddpg", "td3", "sac")


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--scripts", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), help="ours")
    add("--env-id", default="Pendulum-v1", metavar="ID", help="environment")
    add("--total-steps", type=integer(1), default=10_000, help="length of each run [env steps]")
    add("--seeds", nargs="+", type=SEED, default=[0, 1, 2], metavar="N", help="one run each")
    add("--num-threads", type=integer(1), default=2, help="threads of PyTorch on the CPU")
    add("--log-dir", default="runs/compare_sb3", help="where the run folders go")
    return parser.parse_args(argv)


def main(args):
    check_env_id(args.env_id)
    check_package("stable_baselines3")
    sweep.handle_signals()  # a KeyboardInterrupt: no training goes on without this process
    print(machine())
    results = {}
    for script in args.scripts:
        for seed in args.seeds:
            for name, train in ((script, train_ours), (f"sb3-{script}", train_sb3)):
                folder = Path(args.log_dir) / run_name(args.env_id, name, seed)
                if not complete(folder, args.total_steps):
                    if folder.exists() and not (folder / "checkpoint.pt").exists():
                        move_aside(folder)
                    train(script, seed, folder, args)
                curve = read_curve(folder / "progress.csv")
                final = final_return(curve["global_step"], curve["eval_return_mean"])
                results.setdefault(name, []).append(final)
                print(f"{name:<10} seed {seed}: {results[name][-1]:.1f}", flush=True)
    print("\n| script | ours | Stable-Baselines3 | ours - theirs | 95 % interval |")
    print("|---|---|---|---|---|")
    for script in args.scripts:
        ours, theirs = results[script], results[f"sb3-{script}"]
        cells = [script, spread(ours), spread(theirs), *difference(ours, theirs)]
        print(f"| {' | '.join(cells)} |")


def spread(values):
    std = f" +- {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{std}"


def difference(ours, theirs):
    """The difference of two means and its 95 % interval by Welch, as text; of one seed there is
    none."""
    from scipy.stats import ttest_ind

    mean = f"{statistics.fmean(ours) - statistics.fmean(theirs):+.1f}"
    if min(len(ours), len(theirs)) < 2:
        return mean, "-"
    low, high = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return mean, f"{low:+.1f} to {high:+.1f}"


def complete(folder, total_steps):
    """Whether a run is there to its end. UserError if it is longer: curves must end together."""
    try:
        step = read_curve(folder / "progress.csv")["global_step"][-1]
    except (OSError, ValueError):
        return False
    if step > total_steps:
        words = f"{int(step)} steps, not --total-steps {total_steps}; choose another --log-dir"
        raise UserError(f"{folder} has {words}")
    return step == total_steps


def train_ours(script, seed, folder, args):
    options = {"env-id": args.env_id, "total-steps": args.total_steps, "seed": seed}
    options |= {"num-threads": args.num_threads, "run-dir": folder}
    if folder.exists():  # a run that was interrupted, or raised
        options = {"resume": folder, "total-steps": args.total_steps}
    command = [sys.executable, find_script(script)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise child_error(f"{script}, seed {seed},", result.returncode, result.stderr)


def make_sb3(script, env, args):
    """The model of Stable-Baselines3 that does what `script` does with these arguments.

    env: a Gymnasium environment or an id.  args: of the script.
    """
    import stable_baselines3
    from stable_baselines3.common.noise import NormalActionNoise

    options = {
        "learning_rate": args.lr,
        "buffer_size": args.buffer_size,
        "learning_starts": args.learning_starts,
        "batch_size": args.batch_size,
        "tau": args.tau,
        "gamma": args.gamma,
        "train_freq": 1,
        "gradient_steps": round(args.updates_per_step),
        "policy_kwargs": {"net_arch": list(args.hidden_dims)},
        "seed": args.seed,
        "device": args.device,
    }
    if script.endswith("sac"):
        options["ent_coef"] = "auto" if args.alpha is None else args.alpha
    else:
        size = env.action_space.shape
        options["action_noise"] = NormalActionNoise(
            np.zeros(size), np.full(size, args.exploration_noise)
        )
    if script == "td3":
        options |= {
            "policy_delay": args.policy_delay,
            "target_policy_noise": args.target_noise,
            "target_noise_clip": args.noise_clip,
        }
    if script == "conv_sac":
        options["policy_kwargs"] |= encoder_of_sb3(args)
        options["n_steps"] = args.n_step
        return stable_baselines3.SAC("CnnPolicy", env, **options)
    kind = getattr(stable_baselines3, script.upper())
    return kind("MlpPolicy", env, **options)


def encoder_of_sb3(args):
    """Policy arguments that give Stable-Baselines3 the encoder of conv_sac.py."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    from conv_sac import Encoder

    class Extractor(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, args.feat_dim)
            self.layers = nn.Sequential(*Encoder(space.shape, args))

        def forward(self, obs):  # from 0 to 1
            return self.layers(obs)

    return {"features_extractor_class": Extractor}


class Peer:
    """A model of Stable-Baselines3 in the shape that `common.evaluate.evaluate` expects."""

    def __init__(self, model):
        self.model = model

    def act(self, obs, hidden=None, deterministic=False):
        starts = np.zeros(len(obs), bool)  # an episode begins where `hidden` is None
        return self.model.predict(obs, hidden, starts, deterministic)


def train_sb3(script, seed, folder, args):
    """Trains Stable-Baselines3 with the defaults of `script` in a folder of the same kind."""
    import torch

    from common.envs import make_env
    from common.files import write_csv

    module = importlib.import_module(script)
    words = ["--seed", str(seed), "--env-id", args.env_id, "--total-steps", str(args.total_steps)]
    its = module.parse_args(words)
    torch.set_num_threads(args.num_threads)
    env = make_env(args.env_id, seed)
    folder.mkdir(parents=True)
    path = folder / "progress.csv"
    write_csv(path, learn(make_sb3(script, env, its), its, path, time.time()))
    env.close()


def learn(model, args, path, start):
    """Trains a model of Stable-Baselines3; evaluates it and writes a CSV as our scripts do.

    args: with env_id, seed, total_steps, eval_every, eval_episodes.  start: the time that counts
    as 0 seconds.  Returns all rows; the last one is not in the file yet, so that the caller can
    write it when nothing is left to do.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    from common.evaluate import evaluate, make_eval_envs
    from common.files import write_csv
    from envs.wrappers import make_seeds

    eval_envs, rows = make_eval_envs(args), []

    class Evaluate(BaseCallback):
        def _on_training_start(self):
            self.write()

        def _on_step(self):
            step = self.num_timesteps
            if step % args.eval_every == 0 or step == args.total_steps:
                self.write()
            return step < args.total_steps  # not to the end of a rollout of fixed length

        def write(self):
            # The start states that ours is evaluated on.
            seeds = make_seeds(
                "evaluation", args.seed, self.num_timesteps, count=args.eval_episodes
            )
            results = evaluate(Peer(model), eval_envs, seeds)
            seconds = time.time() - start
            row = {
                "global_step": self.num_timesteps,
                "num_updates": model._n_updates,
                "wall_seconds": round(seconds, 3),
                "eval_return_mean": statistics.fmean(results["returns"]),
                "eval_return_std": statistics.pstdev(results["returns"]),
                "eval_length_mean": statistics.fmean(results["lengths"]),
                "steps_per_second": round(self.num_timesteps / seconds, 2),
            }
            rows.append(row)
            if self.num_timesteps < args.total_steps:
                write_csv(path, rows)

    model.learn(args.total_steps, callback=Evaluate())
    eval_envs.close()
    return rows


if __name__ == "__main__":
    run_cli(main, parse_args())
