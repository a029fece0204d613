"""Recurrent PPO of sb3-contrib, for comparison in our figures.

    python benchmark/recurrent_ppo.py --env-id pendulum-p-v0

Writes the same progress.csv as our scripts, from the same environments and evaluations, so that the
sweep and the plot take it as one more script. Its hyperparameters are its own defaults. It saves no
checkpoint, so a run that was cut off starts anew. test.txt has the returns of fresh episodes at the
end.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # started as a file

from benchmark import check_package
from benchmark.compare_sb3 import Peer, learn
from benchmark.scoreboard import TEST_EPISODES, TEST_SEED, TESTED
from common.cli import SEED, Parser, integer, run_cli
from common.errors import UserError
from common.files import file_name


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--env-id", default="pendulum-p-v0", help="environment")
    add("--seed", type=SEED, default=0, help="random seed")
    add("--total-steps", type=integer(1), default=50_000, help="length of the run [env steps]")
    add("--num-threads", type=integer(1), default=1, help="threads of PyTorch on the CPU")
    add("--eval-every", type=integer(1), default=500, help="evaluate this often [env steps]")
    add("--eval-episodes", type=integer(1), default=10, help="episodes of each evaluation")
    add("--test-episodes", type=integer(1), default=TEST_EPISODES, help="fresh ones at the end")
    add("--run-dir", help="new folder; runs/<env>__recurrent_ppo__<seed>__<time> if not set")
    return parser.parse_args(argv)


def main(args):
    check_package("sb3_contrib")
    import psutil
    import torch
    from sb3_contrib import RecurrentPPO

    from common.envs import make_env
    from common.evaluate import evaluate, make_eval_envs, summary
    from common.files import write_csv
    from common.run import origin
    from envs.wrappers import make_seeds

    torch.set_num_threads(args.num_threads)
    name = f"{file_name(args.env_id)}__recurrent_ppo__{args.seed}__{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(args.run_dir or f"runs/{name}")
    if folder.exists():
        raise UserError(f"{folder} exists; choose another --run-dir")
    env = make_env(args.env_id, args.seed)
    folder.mkdir(parents=True)
    (folder / "args.json").write_text(json.dumps(vars(args), indent=2) + "\n")
    (folder / "run.json").write_text(json.dumps([origin()], indent=2) + "\n")
    model = RecurrentPPO("MlpLstmPolicy", env, seed=args.seed, device="cpu")
    progress = folder / "progress.csv"
    rows = learn(model, args, progress, psutil.Process().create_time())
    env.close()
    envs = make_eval_envs(args)
    results = evaluate(Peer(model), envs, make_seeds("test", TEST_SEED, count=args.test_episodes))
    envs.close()
    (folder / TESTED).write_text(summary(results) + "\n")
    write_csv(progress, rows)  # last: a run with its final row is finished


if __name__ == "__main__":
    run_cli(main, parse_args())
