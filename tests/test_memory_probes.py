"""Tasks of seconds that need memory: recurrent scripts solve them, memoryless ones cannot.

That no policy without memory has a mean return other than 0 is proved in probes.py; the thresholds
below are shares of the best return.
"""

import csv
import importlib
from pathlib import Path

import probes
import pytest

from benchmark.sweep import read_config, settings

SOLVED, HELPLESS = 0.8, 0.5
BEST = {"CueRecall5": 4, "CueRecall10": 4, "CueRecall20": 4}
BEST |= {"Velocity": 7, "Position": 7, "HiddenConstant": 9}
CONFIG = Path(__file__).parent.parent / "benchmark" / "configs" / "probes.txt"
LINES = {(script, tag): options for script, _, options, tag in read_config(CONFIG)}
WITH_MEMORY = {"ddpg": "rdpg", "td3": "rtd3", "sac": "rsac"}
OF_MEMORY = ("--rnn-hidden", "--rnn-lr", "--sequence-length", "--memory-input")


def learn(script, probe, tmp_path, steps, tag=""):
    """The mean return of the last evaluation as a share of the best one.

    The settings are those of the config's line for the script, or for its sibling with memory.
    """
    module = importlib.import_module(script)
    options = settings(["python", script, *LINES[WITH_MEMORY.get(script, script) + ".py", tag]])
    for name in ("script", *(OF_MEMORY if script in WITH_MEMORY else ())):
        del options[name]
    argv = [word for name, values in options.items() for word in (name, *values)]
    argv += f"--env-id probes:{probe}-v0 --total-steps {steps} --eval-every {steps}".split()
    argv += ["--num-threads", "1", "--log-dir", str(tmp_path)]
    assert not module.main(module.parse_args(argv))
    (path,) = tmp_path.glob("*/progress.csv")
    with open(path, newline="") as file:
        return float(list(csv.DictReader(file))[-1]["eval_return_mean"]) / BEST[probe]


@pytest.mark.parametrize("script", ["rdpg", "rtd3", "rsac", "rsac_sharing"])
@pytest.mark.parametrize(
    ("probe", "steps"),
    [
        ("CueRecall5", 1500),
        ("CueRecall10", 1500),
        ("Velocity", 1500),
        ("Position", 2000),
        ("HiddenConstant", 3000),
    ],
)
def test_a_script_with_memory_solves_the_probe(script, probe, steps, tmp_path):
    assert learn(script, probe, tmp_path, steps) >= SOLVED


@pytest.mark.parametrize("script", ["rdpg", "rtd3", "rsac", "rsac_sharing"])
def test_gates_that_are_open_at_first_recall_a_cue_20_steps_back(script, tmp_path):
    # Gates that are half open let a millionth of the cue through, and of its gradient.
    assert learn(script, "CueRecall20", tmp_path, 4000, "forget1") >= SOLVED


@pytest.mark.parametrize(
    ("script", "probe"),
    [
        ("sac", "CueRecall5"),
        ("td3", "Velocity"),
        ("ddpg", "HiddenConstant"),
        ("sac", "Position"),
    ],
)
def test_a_script_without_memory_cannot(script, probe, tmp_path):
    assert abs(learn(script, probe, tmp_path, 1500)) < HELPLESS


@pytest.mark.parametrize("delay", [5, 10, 20])
def test_when_the_cue_is_asked_for_both_cues_look_the_same(delay):
    env = probes.CueRecall(delay=delay)
    asked = {}
    for seed in range(20):
        env.reset(seed=seed)
        for t in range(delay, env.steps):
            asked.setdefault(env.answers[t], set()).add(tuple(env.obs[t]))
    assert asked == {-1: {(0, 1)}, 1: {(0, 1)}}
