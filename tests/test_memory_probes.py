"""Tasks of seconds that need memory: recurrent scripts solve them, memoryless ones cannot.

That no policy without memory has a mean return other than 0 is proved in probes.py; the thresholds
below are shares of the best return.
"""

import csv
import importlib

import probes
import pytest

SOLVED, HELPLESS = 0.8, 0.5
BEST = {"CueRecall5": 4, "CueRecall10": 4, "CueRecall20": 4}
BEST |= {"Velocity": 7, "Position": 7, "HiddenConstant": 9}
COMMON = """--num-threads 1 --learning-starts 200 --update-every 4 --updates-per-step 0.25
    --eval-episodes 40 --save-every 1000000 --gamma 0.5 --tau 0.05 --hidden-dims 32 --lr 3e-3
    --buffer-size 100000"""
MEMORY = """--rnn-hidden 16 --rnn-lr 5e-3 --sequence-length 0 --batch-size 32 --memory-input obs"""
ENTROPY = "--alpha 0.03 --no-autotune"
NOISE = "--exploration-noise 0.5"


def learn(script, probe, tmp_path, steps, *more):
    """The mean return of the last evaluation as a share of the best one."""
    module = importlib.import_module(script)
    argv = f"{COMMON} --env-id probes:{probe}-v0 --total-steps {steps} --eval-every {steps}".split()
    argv += ENTROPY.split() if "sac" in script else NOISE.split()
    argv += [*MEMORY.split(), *more] if script.startswith("r") else []
    assert not module.main(module.parse_args([*argv, "--log-dir", str(tmp_path)]))
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
    assert learn(script, "CueRecall20", tmp_path, 4000, "--forget-bias", "1") >= SOLVED


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
