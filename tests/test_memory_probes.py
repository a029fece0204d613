"""Tasks of seconds that need memory: recurrent scripts solve them, memoryless ones cannot.

That no policy without memory has a mean return other than 0 is proved in probes.py; the thresholds
below are shares of the best return. All arguments are the defaults.
"""

import importlib

import probes
import pytest
from script_runs import RECURRENT

from benchmark import read_curve

SOLVED, HELPLESS = 0.8, 0.5
BEST = {"CueRecall5": 4, "CueRecall10": 4, "CueRecall20": 4, "CueRecall50": 4}
BEST |= {"Velocity": 7, "Position": 7, "HiddenConstant": 9}
STEPS = {"CueRecall20": 6000, "CueRecall50": 20_000}  # 4000 for the others


def learn(script, probe, tmp_path):
    """The mean return of the last evaluation as a share of the best one."""
    module, steps = importlib.import_module(script), STEPS.get(probe, 4000)
    text = f"--env-id probes:{probe}-v0 --total-steps {steps} --eval-every {steps} --num-threads 1"
    text += f" --eval-episodes 40 --run-dir {tmp_path / 'run'}"
    assert not module.main(module.parse_args(text.split()))
    return read_curve(tmp_path / "run" / "progress.csv")["eval_return_mean"][-1] / BEST[probe]


SOLVES = [(script, probe) for script in RECURRENT for probe in BEST]
SOLVES = [pair for pair in SOLVES if pair[0] == "rsac" or pair[1] != "CueRecall50"]  # minutes each


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes on a machine that does something else, too
@pytest.mark.parametrize(("script", "probe"), SOLVES)
def test_a_script_with_memory_solves_the_probe(script, probe, tmp_path):
    assert learn(script, probe, tmp_path) >= SOLVED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "probe"),
    [("sac", "CueRecall5"), ("td3", "Velocity"), ("ddpg", "HiddenConstant"), ("sac", "Position")],
)
def test_a_script_without_memory_cannot(script, probe, tmp_path):
    assert abs(learn(script, probe, tmp_path)) < HELPLESS


@pytest.mark.parametrize("delay", [5, 10, 20, 50])
def test_when_the_cue_is_asked_for_both_cues_look_the_same(delay):
    env = probes.CueRecall(delay=delay)
    asked = {}
    for seed in range(20):
        env.reset(seed=seed)
        for t in range(delay, env.steps):
            asked.setdefault(env.answers[t], set()).add(tuple(env.obs[t]))
    assert asked == {-1: {(0, 1)}, 1: {(0, 1)}}
