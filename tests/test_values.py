"""benchmark.values: predictions and returns are those of the same steps of the same episodes."""

import numpy as np
import pytest
import torch
from script_runs import SCRIPTS, env_id, tiny, train

from benchmark import open_run, values
from common.errors import UserError
from common.evaluate import evaluate
from envs.wrappers import make_seeds

FLAT = [name for name in SCRIPTS if name != "conv_sac"]


def test_returns_to_go_are_those_of_a_sum_written_out():
    returns = values.returns_to_go([1.0, 2.0, 4.0], 0.5)
    assert returns.tolist() == [1 + 0.5 * 2 + 0.25 * 4, 2 + 0.5 * 4, 4]


@pytest.mark.parametrize("script", FLAT)
def test_the_episodes_are_those_of_an_evaluation(script, tmp_path):
    run = train(script, tiny(script), tmp_path)
    agent, envs = open_run(run, "--eval-episodes", 10, env_id=env_id(script))
    seeds = make_seeds("test", 0, count=10)
    wanted = evaluate(agent, envs, seeds)
    _, _, reward, terminated, lengths = values.play(agent, envs, seeds)
    envs.close()
    assert lengths.tolist() == wanted["lengths"]
    returns = [reward[:n, i].sum() for i, n in enumerate(lengths)]
    assert np.allclose(returns, wanted["returns"], rtol=1e-5)
    assert terminated.tolist() == [bool(x) for x in wanted["successes"]]  # of this environment


@pytest.mark.parametrize("script", ["sac", "rdpg", "rsac"])
def test_predictions_are_those_of_the_critics_step_by_step(script, tmp_path):
    run = train(script, tiny(script), tmp_path)
    agent, envs = open_run(run, "--eval-episodes", 3, env_id=env_id(script))
    obs, action, *_ = values.play(agent, envs, make_seeds("test", 0, count=3))
    envs.close()
    q = values.predict(agent, obs, action)
    hidden = None
    for t in range(len(obs)):
        feat = torch.from_numpy(obs[t])
        if script != "sac":
            feat, hidden = agent.critics.rnn((feat / agent.obs_scale)[:, None], hidden)
            feat = feat[:, 0]
        expected = agent.critics(feat, torch.from_numpy(action[t]))
        expected = expected if script == "rdpg" else sum(expected) / 2
        scale = agent.reward_scale if script == "rsac" else 1
        assert np.allclose(q[t], (expected[:, 0] * scale).detach(), atol=1e-5)


class KnowsAll:
    """Always pushes; its critic says of each step what was written down for it."""

    device = "cpu"

    def __init__(self, known):
        self.known = known

    def act(self, obs, hidden=None, deterministic=False):
        return np.ones((len(obs), 2), np.float32), hidden

    def critics(self, feat, action):
        steps, count = feat.shape[:2]
        return self.known[:steps, :count, None]


@pytest.mark.parametrize(("of_run", "option"), [(0.5, []), (0.9, ["--gamma", "0.5"])])
def test_the_table_compares_the_same_steps(of_run, option, tmp_path, monkeypatch, capsys):
    run = train("sac", tiny("sac", "--gamma", of_run), tmp_path)
    id_ = env_id("sac")
    _, envs = open_run(run, "--eval-episodes", 10, env_id=id_)
    pushing = KnowsAll(torch.zeros(7, 10))
    _, _, reward, terminated, lengths = values.play(pushing, envs, make_seeds("test", 0, count=10))
    assert 0 < terminated.sum() < 10  # both ways to end
    q = np.random.default_rng(0).normal(size=(7, 10)).astype(np.float32)
    monkeypatch.setattr(values, "open_run", lambda *_, **__: (KnowsAll(torch.from_numpy(q)), envs))
    words = [str(run), "--episodes", "10", "--at", "0", "3", "--env-id", id_, *option]
    values.main(values.parse_args(words))
    report, _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert report == "10 episodes, gamma 0.5"
    for at, row in zip((0, 3), rows, strict=True):
        p, e, b = [], [], []  # written out: prediction, rewards, the value beyond a time limit
        for i in np.flatnonzero(lengths > at):
            last = lengths[i] - 1
            steps = range(at, last + 1 if terminated[i] else last)
            p.append(q[at, i])
            e.append(sum(0.5 ** (t - at) * reward[t, i] for t in steps))
            b.append(0 if terminated[i] else 0.5 ** (last - at) * q[last, i])
        p, e, b = map(np.array, (p, e, b))
        error = np.sqrt(np.mean((p - e - b) ** 2))
        expected = at, p.mean(), (e + b).mean(), b.mean(), error, np.corrcoef(p - b, e)[0, 1]
        assert [float(x) for x in row.strip("| ").split(" | ")] == pytest.approx(
            expected, rel=1e-3, abs=0.006
        )


def test_a_step_that_no_episode_has_is_an_error(tmp_path):
    run = train("rsac", tiny("rsac"), tmp_path)
    words = [str(run), "--episodes", "2", "--at", "7", "--env-id", env_id("rsac")]
    with pytest.raises(UserError, match="0 episodes have a step 7"):
        values.main(values.parse_args(words))


def test_an_exported_policy_has_no_critics():
    with pytest.raises(UserError, match="critics were left out"):
        values.main(values.parse_args(["policies/pendulum-p-v0__rsac.pt"]))


def test_pictures_are_refused(tmp_path):
    run = train("conv_sac", tiny("conv_sac"), tmp_path)
    with pytest.raises(UserError, match="vectors"):
        values.main(values.parse_args([str(run), "--env-id", env_id("conv_sac")]))
