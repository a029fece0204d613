"""Writes the policy of a run as one small file: the networks that act, and where they come from.

    python -m benchmark.export runs/NAME policies

The file is policies/<env>__<script>.pt, and takes the place of the one before. README.md beside it
is written anew: a table of all such files there, with what each one scores and the command, seed
and commit that made it. Docs: docs/policies.md
"""

import math
import shlex
import statistics
from pathlib import Path

from benchmark import ROOT, find_script, open_run, without_folder
from common.cli import Parser, integer, run_cli
from common.errors import UserError
from common.files import file_name, write_file

HEAD = """# Trained policies

Written by `python -m benchmark.export`, as is this table. Each file holds the networks that act;
what only learning needs is left out, so no run can go on from it. How to watch one, and how to use
one in a program: [docs/policies.md](../docs/policies.md).

| file | return | steps | seed | commit | command |
|---|---|---|---|---|---|
"""


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("run", help="run folder or checkpoint")
    add("folder", nargs="?", default="policies", help="where the file and README.md go")
    add("--env-id", metavar="ID", help="of the run; needed if the environment is your own")
    add("--eval-episodes", type=integer(1), default=100, help="episodes played for the table")
    return parser.parse_args(argv)


def acting_part(agent, obs):
    """Names of the entries of `agent.state_dict()` that acting reads.  obs: (N, ...)"""
    from torch.nn.modules.module import register_module_forward_hook

    used = set()
    hook = register_module_forward_hook(lambda module, *_: used.add(module))
    agent.act(obs, deterministic=True)
    hook.remove()
    modules = {name for name, module in agent.named_modules() if module in used}
    modules.add("")  # the scales of the agent itself
    return {name for name in agent.state_dict() if name.rpartition(".")[0] in modules}


def table_row(name, state):
    """The line of README.md about one exported file."""
    origin = state["origins"][0] if state.get("origins") else {}
    words = shlex.split(origin.get("command", ""))[2:]
    path = find_script(state["script"]).resolve().relative_to(ROOT)
    command = f"`{shlex.join(['python', str(path), *words])}`" if origin else "not recorded"
    commit = (origin.get("commit") or "not recorded")[:12]
    commit += " with changes" if origin.get("clean") is False else ""
    command += ", resumed" if len(state.get("origins", [])) > 1 else ""
    returns = state["returns"]
    score = f"{statistics.fmean(returns):.4g} +- {statistics.pstdev(returns):.3g}"
    score += f" ({len(returns)} episodes)"
    cells = [f"[{name}]({name})", score, state["step"], state["args"]["seed"], commit, command]
    return f"| {' | '.join(map(str, cells))} |"


def write_table(folder):
    """Writes README.md of a folder from the exported files in it."""
    from common.checkpoint import load_checkpoint

    states = {path.name: load_checkpoint(path, None) for path in sorted(folder.glob("*.pt"))}
    rows = [table_row(name, state) for name, state in states.items() if "returns" in state]
    write_file(folder / "README.md", (HEAD + "\n".join(rows) + "\n").encode())


def main(args):
    folder = Path(args.folder)
    table = folder / "README.md"
    if table.exists() and not table.read_text().startswith(HEAD.splitlines()[0]):
        raise UserError(f"{table} is another file, and would be overwritten; choose another folder")
    agent, envs = open_run(args.run, "--eval-episodes", args.eval_episodes, env_id=args.env_id)
    from common.checkpoint import load_checkpoint, save_checkpoint
    from common.evaluate import evaluate
    from envs.wrappers import make_seeds

    state = load_checkpoint(args.run, script=None)
    if "progress" not in state:
        raise UserError(f"{args.run} is an exported policy already")
    seeds = make_seeds("test", 0, count=args.eval_episodes)  # those of --evaluate
    returns = evaluate(agent, envs, seeds)["returns"]
    kept = acting_part(agent, envs.reset()[0])
    envs.close()
    # An entry that is left out keeps its shape, and takes the space of one number.
    networks = {
        name: x.clone() if name in kept else x.new_full((), math.nan).expand(x.shape)
        for name, x in state["agent"].items()
    }
    policy = {
        "script": state["script"],
        "args": state["args"] | {"run_dir": None, "resume": None},
        "agent": networks,
        "envs": [{"shapes": state["envs"][0]["shapes"]}],  # for `load_agent`
        "step": state["progress"][0],
        "returns": returns,
        "origins": [without_folder(origin) for origin in state.get("origins", [])],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(state['args']['env_id'])}__{state['script']}.pt"
    save_checkpoint(folder, policy, path.name)
    write_table(folder)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    run_cli(main, parse_args())
