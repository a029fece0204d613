"""Learning curves of Stable-Baselines3 beside ours: same hyperparameters, same evaluations.

    python -m benchmark.compare_sb3 --env-id Pendulum-v1 --total-steps 10000 --seeds 0 1 2 3 4
    python -m benchmark.plot runs/compare_sb3 --out docs/_static/sb3

For each script and seed, trains ours in a process of its own and Stable-Baselines3 here, both with
the script's default arguments (sac with --alpha 1), and leaves a run folder with a progress.csv for
each: <env>__sac__<seed> and <env>__sb3-sac__<seed>. Runs that are complete are not repeated. The
table at the end has mean and standard deviation over seeds of the final return, which is the mean
of the last tenth of the evaluations.
"""

import csv
import importlib
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmark import (
    check_env_id,
    check_package,
    final_return,
    find_script,
    machine,
    read_curve,
)
from common.cli import Parser, file_name, integer, run_cli
from common.errors import RunError

SCRIPTS = ("ddpg", "td3", "sac")
STARTS = {"sac": ["--alpha", "1.0"]}  # that of Stable-Baselines3's "auto"


def parse_args(argv=None):
    parser = Parser(__doc__)
    parser.prog = "python -m benchmark.compare_sb3"
    add = parser.add_argument
    add("--scripts", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), help="which of ours")
    add("--env-id", default="Pendulum-v1", metavar="ID", help="environment")
    add("--total-steps", type=integer(1), default=10_000, help="length of each run [env steps]")
    add("--seeds", nargs="+", type=integer(0, 2**31 - 1), default=[0, 1, 2], metavar="N")
    add("--num-threads", type=integer(1), default=2, help="of PyTorch on the cpu")
    add("--log-dir", default="runs/compare_sb3", help="where run folders go")
    return parser.parse_args(argv)


def main(args):
    check_env_id(args.env_id)
    check_package("stable_baselines3")
    print(machine())
    results = {}
    for script in args.scripts:
        for seed in args.seeds:
            for name, train in ((script, train_ours), (f"sb3-{script}", train_sb3)):
                env_name = file_name(args.env_id)
                folder = Path(args.log_dir) / f"{env_name}__{name}__{seed}"
                if not complete(folder, args.total_steps):
                    train(script, seed, folder, args)
                curve = read_curve(folder / "progress.csv")
                final = final_return(curve["global_step"], curve["eval_return_mean"])
                results.setdefault(name, []).append(final)
                print(f"{name:<10} seed {seed}: {results[name][-1]:.1f}", flush=True)
    print("\n| script | ours | Stable-Baselines3 | ours - theirs, in their standard errors |")
    print("|---|---|---|---|")
    for script in args.scripts:
        ours, theirs = results[script], results[f"sb3-{script}"]
        error = np.std(theirs) / max(len(theirs) - 1, 1) ** 0.5
        gap = (statistics.fmean(ours) - statistics.fmean(theirs)) / (error or np.nan)
        print(f"| {script} | {spread(ours)} | {spread(theirs)} | {gap:+.2f} |")


def spread(values):
    return f"{statistics.fmean(values):.1f} +- {np.std(values):.1f}"


def complete(folder, total_steps):
    try:
        return read_curve(folder / "progress.csv")["global_step"][-1] >= total_steps
    except (OSError, ValueError):
        return False


def train_ours(script, seed, folder, args):
    options = {"env-id": args.env_id, "total-steps": args.total_steps, "seed": seed}
    options |= {"num-threads": args.num_threads, "log-dir": folder.parent, "run-name": folder.name}
    if any(folder.glob("checkpoint*.pt")):  # a run that was interrupted, or raised
        options = {"resume": folder, "total-steps": args.total_steps}
    else:
        shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, find_script(script)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    command += STARTS.get(script, [])
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["no output"]
        raise RunError(f"{script}, seed {seed}, failed: {lines[-1]}")


def make_sb3(script, env, args, **more):
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
        "train_freq": args.update_every,
        "gradient_steps": round(args.update_every * args.updates_per_step),
        "policy_kwargs": {"net_arch": list(args.hidden_dims)},
        "seed": args.seed,
        "device": args.device,
    }
    if script.endswith("sac"):
        options["ent_coef"] = f"auto_{args.alpha or 1.0}" if args.autotune else args.alpha
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
        return stable_baselines3.SAC("CnnPolicy", env, **options | more)
    kind = getattr(stable_baselines3, script.upper())
    return kind("MlpPolicy", env, **options | more)


def encoder_of_sb3(args):
    """Policy arguments that give Stable-Baselines3 the encoder of conv_sac.py."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    from conv_sac import Encoder

    class Extractor(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, args.feat_dim)
            self.encoder = Encoder(space.shape, args.encoder, args.feat_dim)

        def forward(self, obs):  # from 0 to 1
            return self.encoder.head(self.encoder.convs(obs))

    return {"features_extractor_class": Extractor}


class Sb3Agent:
    """A model of Stable-Baselines3 in the shape that the scripts' `evaluate` expects."""

    def __init__(self, model):
        self.model = model

    def act(self, obs, deterministic=False):
        return self.model.predict(obs, deterministic=deterministic)[0]


def train_sb3(script, seed, folder, args):
    """Trains and evaluates Stable-Baselines3 as `script` does, into the same kind of folder."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    from common.envs import make_env, make_envs
    from common.run import COLUMNS

    module = importlib.import_module(script)
    argv = ["--seed", str(seed), "--env-id", args.env_id, *STARTS.get(script, [])]
    its = module.parse_args(argv)
    torch.set_num_threads(args.num_threads)
    model = make_sb3(script, make_env(args.env_id, seed), its)
    eval_envs = make_envs(args.env_id, its.eval_episodes)
    folder.mkdir(parents=True, exist_ok=True)
    start, rows = time.perf_counter(), []

    def evaluate(step):
        its_seed = (seed + 1) << 32 | step  # the start states that ours is evaluated on
        result = module.evaluate(Sb3Agent(model), eval_envs, its.eval_episodes, its_seed)
        returns, lengths = result[:2]
        seconds = time.perf_counter() - start
        trained = [episode["r"] for episode in model.ep_info_buffer or []]
        rows.append(
            {
                "global_step": step,
                "num_updates": max(0, model.num_timesteps - its.learning_starts),
                "wall_seconds": round(seconds, 3),
                "train_return_mean": statistics.fmean(trained) if trained else float("nan"),
                "eval_return_mean": statistics.fmean(returns),
                "eval_return_std": statistics.pstdev(returns),
                "eval_length_mean": statistics.fmean(lengths),
                "steps_per_second": round(step / seconds, 2),
            }
        )

    class Evaluate(BaseCallback):
        def _on_training_start(self):
            evaluate(0)

        def _on_step(self):
            if self.num_timesteps % its.eval_every == 0:
                evaluate(self.num_timesteps)
            return True

    model.learn(args.total_steps, callback=Evaluate())
    if rows[-1]["global_step"] != args.total_steps:
        evaluate(args.total_steps)
    for env in eval_envs:
        env.close()
    with open(folder / "progress.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    run_cli(main, parse_args())
