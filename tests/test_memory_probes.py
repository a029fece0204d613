"""Tasks of seconds that need memory: recurrent scripts solve them, memoryless ones cannot.

That no policy without memory has a mean return other than 0 is proved in probes.py; the thresholds
below are shares of the best return. All arguments are the defaults.
"""

import importlib

import probes
import pytest
from script_runs import RECURRENT

from benchmark import read_curve
from common.run import Run

SOLVED, HELPLESS = 0.8, 0.5
BEST = {"CueRecall5": 4, "CueRecall10": 4, "CueRecall20": 4, "CueRecall50": 4}
BEST |= {"Velocity": 7, "Position": 7, "HiddenConstant": 9}
STEPS = {"CueRecall50": 24_000}  # 10,000 for the others, half of them random


def learn(script, probe, tmp_path, monkeypatch):
    """The last evaluation's mean return as a share of the best one; the first that solves the probe
    ends the run."""
    module, steps = importlib.import_module(script), STEPS.get(probe, 10_000)

    class UntilSolved(Run):
        def running(self, global_step):
            solved = self.rows[-1]["eval_return_mean"] >= SOLVED * BEST[probe]
            return super().running(global_step) and not solved

    monkeypatch.setattr(module, "Run", UntilSolved)
    text = f"--env-id probes:{probe}-v0 --total-steps {steps} --eval-every 500 --num-threads 1"
    text += f" --seed 0 --eval-episodes 40 --run-dir {tmp_path / 'run'}"
    assert not module.main(module.parse_args(text.split()))
    return read_curve(tmp_path / "run" / "progress.csv")["eval_return_mean"][-1] / BEST[probe]


SOLVES = [(script, probe) for script in RECURRENT for probe in BEST]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes on a machine that does something else, too
@pytest.mark.parametrize(("script", "probe"), SOLVES)
def test_a_script_with_memory_solves_the_probe(script, probe, tmp_path, monkeypatch):
    assert learn(script, probe, tmp_path, monkeypatch) >= SOLVED


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("script", "probe"),
    [("sac", "CueRecall5"), ("td3", "Velocity"), ("ddpg", "HiddenConstant"), ("sac", "Position")],
)
def test_a_script_without_memory_cannot(script, probe, tmp_path, monkeypatch):
    assert abs(learn(script, probe, tmp_path, monkeypatch)) < HELPLESS


@pytest.mark.parametrize("delay", [5, 10, 20, 50])
def test_when_the_cue_is_asked_for_both_cues_look_the_same(delay):
    env = probes.CueRecall(delay=delay)
    asked = {}
    for seed in range(20):
        env.reset(seed=seed)
        for t in range(delay, env.steps):
            asked.setdefault(env.answers[t], set()).add(tuple(env.obs[t]))
    assert asked == {-1: {(0, 1)}, 1: {(0, 1)}}
