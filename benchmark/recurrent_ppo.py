"""Recurrent PPO of sb3-contrib, as a peer in our figures: what users of memory run today.

    python benchmark/recurrent_ppo.py --env-id pendulum-p-v0

Writes the same progress.csv as our scripts, from the same environments and evaluations, so that the
sweep and the plot take it as one more script. Its hyperparameters are its own defaults. It saves no
checkpoint; one that was cut off starts anew.
"""

import json
import statistics
import sys
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # started as a file

import numpy as np

from benchmark import check_package, make_folder
from common.cli import Parser, file_name, integer, process_seconds, run_cli
from common.errors import UserError


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--env-id", default="pendulum-p-v0", help="environment")
    add("--seed", type=integer(0, 2**31 - 1), default=0, help="of everything random")
    add("--total-steps", type=integer(1), default=50_000, help="length of the run [env steps]")
    add("--num-threads", type=integer(1), default=1, help="of PyTorch on the cpu")
    add("--eval-every", type=integer(1), default=500, help="period [env steps]")
    add("--eval-episodes", type=integer(1), default=10, help="deterministic episodes each time")
    add("--log-dir", default="runs", help="where run folders go")
    add("--run-name", help="of the folder, not <env>__<script>__<seed>__<time>")
    return parser.parse_args(argv)


def main(args):
    check_package("sb3_contrib")
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.callbacks import BaseCallback

    import rsac
    from common.envs import make_env, make_envs

    torch.set_num_threads(args.num_threads)
    name = f"{file_name(args.env_id)}__recurrent_ppo__{args.seed}__{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(args.log_dir) / (args.run_name or name)
    if folder.exists():
        raise UserError(f"{folder} exists; choose another --run-name")
    make_folder(folder)
    (folder / "args.json").write_text(json.dumps(vars(args), indent=2) + "\n")
    env, eval_envs = make_env(args.env_id, args.seed), make_envs(args.env_id, args.eval_episodes)

    class Peer:
        """RecurrentPPO in the shape that `rsac.evaluate` expects."""

        def __init__(self, model):
            self.model = model

        def act(self, history, hidden=None, deterministic=False):
            obs = history[:, : env.observation_space.shape[0]]
            starts = np.zeros(len(obs), bool)  # `rsac.evaluate` clears the hidden state itself
            return self.model.predict(obs, hidden, starts, deterministic)

    class Log(BaseCallback):
        def _on_training_start(self):
            self.write()

        def _on_step(self):
            step = self.num_timesteps
            if step % args.eval_every == 0 or step == args.total_steps:
                self.write()
            # Its rollouts have a fixed length; it would go on to the end of the last.
            return self.num_timesteps < args.total_steps

        def write(self):
            seed = (args.seed + 1) << 32 | self.num_timesteps  # as our scripts do
            result = rsac.evaluate(Peer(self.model), eval_envs, args.eval_episodes, seed)
            returns, lengths = result[:2]
            wall = process_seconds()
            rate = self.num_timesteps / wall
            row = [
                self.num_timesteps,
                self.model._n_updates,
                f"{wall:.3f}",
                "nan",
                statistics.fmean(returns),
                statistics.pstdev(returns),
                statistics.fmean(lengths),
            ]
            with open(folder / "progress.csv", "a") as file:
                if self.num_timesteps == 0:
                    file.write("global_step,num_updates,wall_seconds,train_return_mean,")
                    file.write(
                        "eval_return_mean,eval_return_std,eval_length_mean,steps_per_second\n"
                    )
                file.write(",".join(map(str, [*row, f"{rate:.2f}"])) + "\n")

    model = RecurrentPPO("MlpLstmPolicy", env, seed=args.seed, device="cpu")
    model.learn(args.total_steps, callback=Log())
    for each in [env, *eval_envs]:
        each.close()


if __name__ == "__main__":
    run_cli(main, parse_args())
