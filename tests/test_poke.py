"""benchmark.poke: what it writes for the page is the policy, and the site has what exists."""

import json
from types import SimpleNamespace

import docs_site  # noqa: F401  (adds docs/_ext to the path)
import numpy as np
import poke as extension
import pytest
from script_runs import checkpoint, tiny, train

from benchmark import open_run, poke
from common.errors import UserError
from common.evaluate import evaluate
from envs.wrappers import make_seeds


def small(env_id, *more):
    return tiny("rsac", "--learning-starts", 20, *more, total=30, env=env_id)


def export(run, out, episodes=2):
    words = [str(run), "--out", str(out), "--episodes", str(episodes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poke, "FRAMES", ())
        poke.main(poke.parse_args(words))
    return json.loads(out.read_text())


@pytest.mark.parametrize(
    ("script", "memory"), [("rsac", "actor_average.rnn"), ("rsac_sharing", "rnn_average")]
)
def test_the_file_has_the_weights_and_the_return_of_the_policy(script, memory, tmp_path):
    run = train(script, small("pendulum-p-v0"), tmp_path)
    page = export(run, tmp_path / "policy.json", episodes=12)
    state = checkpoint(run)["agent"]
    for name, key in (("ih", "weight_ih_l0"), ("hh", "weight_hh_l0")):
        assert np.allclose(page["weights"][name], state[f"{memory}.{key}"], atol=1e-6)
    bias = state[f"{memory}.bias_ih_l0"] + state[f"{memory}.bias_hh_l0"]
    assert np.allclose(page["weights"]["bias"], bias, atol=1e-6)
    *_, last = [name for name in state if name.startswith("actor_average.net") and "weight" in name]
    mean_row, log_std_row = state[last]
    ((last,), _) = page["weights"]["layers"][-1]
    assert np.allclose(last, mean_row, atol=1e-6)
    assert not np.allclose(last, log_std_row, atol=1e-2)
    agent, envs = open_run(run, "--eval-episodes", 12)
    returns = evaluate(agent, envs, make_seeds("test", 0, count=12))["returns"]
    envs.close()
    assert dict(page["returns"])[poke.ALL] == float(f"{np.mean(returns):.3g}")
    assert len(page["usual"]) == len(page["readout"]["weights"][0]) - 1 == 5


def test_a_memory_of_few_frames_knows_nothing_from_before_them(tmp_path):
    run = train("rsac", small("pendulum-p-v0"), tmp_path)
    agent, envs = open_run(run, "--eval-episodes", 2)
    seeds = make_seeds("test", 0, count=2)
    _, obs, hidden, truth = poke.play(agent, envs, seeds, frames=3)
    obs, hidden, truth = (x.reshape(200, 2, -1) for x in (obs, hidden, truth))
    memory = None
    for k in (47, 48, 49):
        _, memory = agent.act(obs[k], memory, deterministic=True)
    assert np.allclose(memory[0][0], hidden[49], atol=1e-6)
    turn = obs[1:, :, 1] * obs[:-1, :, 0] - obs[1:, :, 0] * obs[:-1, :, 1]  # sine of it
    assert np.allclose(np.arcsin(turn) / 0.05, truth[1:, :, 0], atol=1e-3)
    envs.close()


@pytest.mark.parametrize("told", [0.5, -1.0])
def test_an_action_that_is_told_is_the_one_that_is_played(tmp_path, told):
    run = train("rsac", small("pendulum-p-v0"), tmp_path)
    agent, envs = open_run(run, "--eval-episodes", 2)
    act = lambda obs, truth: np.full((len(obs), 1), told, np.float32)  # noqa: E731
    _, obs, _, _ = poke.play(agent, envs, make_seeds("test", 0, count=2), told=act)
    assert (obs[2:, 2] == np.float32(told)).all()
    envs.close()


BAD = {
    "another environment": ("rsac", "pendulum-va-v0", [], "the page has pendulum-p-v0"),
    "no memory": ("sac", "pendulum-p-v0", [], "runs actors with an LSTM"),
    "too many weights": ("rsac", "pendulum-p-v0", ["--rnn-dim", 100], "are too many for a page"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_policy_that_the_page_cannot_run_is_refused_in_one_line(what, tmp_path):
    script, env_id, more, expected = BAD[what]
    run = train(script, tiny(script, *more, env=env_id), tmp_path)
    with pytest.raises(UserError, match=expected):
        export(run, tmp_path / "policy.json")
    assert not (tmp_path / "policy.json").exists()


def test_a_bad_place_is_refused_in_one_line(tmp_path, capsys):
    with pytest.raises(UserError, match="there is no folder"):
        poke.main(poke.parse_args([str(tmp_path), "--out", str(tmp_path / "no" / "a.json")]))
    with pytest.raises(SystemExit, match="2"):
        poke.parse_args([str(tmp_path), "--out", "a.txt"])
    assert "must end in .json" in capsys.readouterr().err


def test_the_page_tells_of_a_policy_only_if_there_is_one(tmp_path):
    (tmp_path / "poke").mkdir()
    (tmp_path / "poke_reacher.md").write_text("## A target shown once")
    app, scripts = SimpleNamespace(srcdir=tmp_path), []
    app.add_js_file = lambda name, **options: scripts.append(name)

    def page(name):
        source, context = ["# Poke a memory"], {"body": ""}
        extension.add_parts(app, name, source)
        extension.add_policies(app, name, "page.html", context, None)
        return source[0] + context["body"]

    assert page("poke") == "# Poke a memory"
    (tmp_path / "poke" / "reacher.json").write_text('{"env":"reacher-pomdp-v0"}')
    assert "## A target shown once" in page("poke")
    assert '{"env":"reacher-pomdp-v0"}' in page("poke")
    assert scripts == ["poke.js"] * 3
    assert page("index") == "# Poke a memory"
