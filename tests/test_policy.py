"""Policies in other programs, exported policies, and those that come with the repository."""

import shutil
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from docs_site import DOCS, fences
from script_runs import RECURRENT, ROOT, SCRIPTS, checkpoint, env_id, run, tiny, train

from benchmark import export
from common.checkpoint import load_checkpoint, save_checkpoint
from common.errors import UserError
from common.policy import load
from envs.wrappers import make_seeds

SHIPPED = sorted((ROOT / "policies").glob("*.pt"))
POLICY = ROOT / "policies" / "pendulum-p-v0__rsac.pt"


def play(policy, name, seeds):
    """The return of one episode for each seed, in the plain environment."""
    env, returns = gym.make(name), []
    for seed in seeds:
        policy.reset()
        (obs, _), rewards, ended = env.reset(seed=seed), [], False
        while not ended:
            action = policy(obs, rewards[-1] if rewards else None)
            assert env.action_space.contains(action)
            obs, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            ended = terminated or truncated
        returns.append(sum(rewards))
    return returns


def evaluated(script, path, tmp_path, *more):
    """What --evaluate prints about four episodes, by name."""
    ended = run(script, ["--evaluate", path, "--eval-episodes", 4, *more], tmp_path)
    assert ended.code == 0, ended.err
    words = ended.out.split()
    return dict(zip(words[::2], map(float, words[1::2]), strict=True))


@pytest.fixture(scope="module", params=SCRIPTS)
def trained(request, tmp_path_factory):
    """Script, id of its environment, folder without replay files, exported file."""
    script, folder = request.param, tmp_path_factory.mktemp(request.param)
    argv = tiny(script)
    argv += ["--memory-input", "obs-action-reward"] if script == "rtd3" else []
    run_folder = train(script, argv, folder)
    for path in (run_folder / "replay").iterdir():
        path.unlink()
    words = [run_folder, folder / "out", "--env-id", env_id(script), "--eval-episodes", 4]
    assert export.main(export.parse_args(list(map(str, words)))) == 0
    return script, env_id(script), run_folder, next((folder / "out").glob("*.pt"))


@pytest.mark.parametrize("which", ["the run", "the exported file"])
def test_a_policy_scores_what_evaluate_says(trained, which, tmp_path):
    script, name, folder, exported = trained
    path = folder if which == "the run" else exported
    told = evaluated(script, path, tmp_path, "--env-id", name, "--seed", 5)
    returns = play(load(path, env_id=name), name, make_seeds("test", 5, count=4))
    assert np.mean(returns) == pytest.approx(told["return_mean"], rel=1e-4)
    assert np.std(returns) == pytest.approx(told["return_std"], rel=1e-4)
    assert min(returns) == pytest.approx(told["return_min"], rel=1e-4)


def test_an_exported_file_holds_what_acts_and_nothing_else(trained):
    script, _, folder, exported = trained
    whole, part = checkpoint(folder), torch.load(exported, weights_only=True)
    acts = dict.fromkeys(RECURRENT, ("actor_average.",))
    acts |= {"rsac_sharing": ("actor_average.", "rnn_average.")}
    acts |= {"conv_sac": ("actor.", "critics.encoder.")}
    assert part["agent"].keys() == whole["agent"].keys()
    for name, tensor in part["agent"].items():
        # What the agent itself has are its scales, and alpha.
        if name.startswith(acts.get(script, ("actor.",))) or "." not in name:
            assert torch.equal(tensor, whole["agent"][name])
        else:
            assert tensor.isnan().all()
            assert tensor.untyped_storage().nbytes() <= 8
    assert {"buffer", "optimizers", "rows"}.isdisjoint(part)
    assert str(folder) not in repr(part)


def test_a_policy_remembers_until_it_is_reset(tmp_path):
    folder = train("rsac", tiny("rsac"), tmp_path)
    policy, obs = load(folder, env_id=env_id("rsac")), np.ones(3)
    first, second = policy(obs), policy(obs)
    assert not np.array_equal(first, second)
    policy.reset()
    np.testing.assert_array_equal(policy(obs), first)
    np.testing.assert_array_equal(policy(obs), second)


def test_loading_a_policy_changes_nothing_in_the_program(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    load(folder, env_id=env_id("sac"))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_a_wrong_observation_and_a_missing_reward_are_refused(tmp_path):
    argv = tiny("rsac", "--memory-input", "obs-action-reward")
    policy = load(train("rsac", argv, tmp_path), env_id=env_id("rsac"))
    with pytest.raises(UserError, match=r"shape \(1, 3\); this policy needs \(3,\)"):
        policy(np.zeros((1, 3)))
    policy(np.zeros(3))
    with pytest.raises(UserError, match="also reads rewards"):
        policy(np.zeros(3))


def test_a_file_cannot_name_a_script_elsewhere(tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    save_checkpoint(tmp_path, {"script": str(tmp_path / "evil.py"), "args": {}})
    with pytest.raises(UserError, match="unknown script 'evil'"):
        load(tmp_path)
    assert not (tmp_path / "ran").exists()


# ---- The table of exported files ----


def rows_of(folder):
    """The cells of each line of the table."""
    lines = (folder / "README.md").read_text().splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| [")]


def test_the_table_says_how_each_file_was_made(tmp_path):
    for seed in (0, 1):
        folder = train("sac", tiny("sac", "--seed", seed), tmp_path, f"run{seed}")
        state = load_checkpoint(folder, "sac")
        state["origins"] = [
            {
                "command": f"python x/sac.py --seed {seed} --run-dir 'a b' --lr 1",
                "commit": 40 * str(seed),
                "clean": seed == 0,
            }
        ]
        save_checkpoint(folder, state)
        words = [folder, tmp_path / "out", "--env-id", env_id("sac"), "--eval-episodes", 3]
        export.main(export.parse_args(list(map(str, words))))
        told = evaluated("sac", folder, tmp_path, "--env-id", env_id("sac"), "--eval-episodes", 3)
        ((link, score, steps, of_seed, commit, command),) = rows_of(tmp_path / "out")
        assert link == "[toy_envs_Toy-v0__sac.pt](toy_envs_Toy-v0__sac.pt)"
        assert score == f"{told['return_mean']:.4g} +- {told['return_std']:.3g} (3 episodes)"
        assert (steps, of_seed) == ("60", str(seed))
        assert commit == ("000000000000" if seed == 0 else "111111111111 with changes")
        assert command == f"`python sac.py --seed {seed} --lr 1`"
    train("td3", tiny("td3"), tmp_path, "td3")
    words[0] = tmp_path / "runs" / "td3"
    export.main(export.parse_args(list(map(str, words))))
    assert [cells[0][1:24] for cells in rows_of(tmp_path / "out")] == [
        "toy_envs_Toy-v0__sac.pt",
        "toy_envs_Toy-v0__td3.pt",
    ]


BAD = {
    "no run": (["nowhere"], "nowhere"),
    "no checkpoint": (["README.md"], "README.md is no checkpoint"),
    "a folder without one": (["docs"], "docs/checkpoint.pt is not there"),
    "another README": (["RUN", "."], "README.md is another file, and would be overwritten"),
    "what was exported": (["SHIPPED", "OUT"], "is an exported policy already"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(case, tmp_path):
    words, says = BAD[case]
    places = {"SHIPPED": str(POLICY), "OUT": str(tmp_path / "out")}
    command = [sys.executable, "-m", "benchmark.export", *(places.get(x, x) for x in words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


# ---- The policies that come with the repository ----


def test_every_shipped_policy_is_small_and_its_origin_is_in_the_table():
    assert SHIPPED
    assert [cells[0] for cells in rows_of(ROOT / "policies")] == [
        f"[{path.name}]({path.name})" for path in SHIPPED
    ]
    for path, cells in zip(SHIPPED, rows_of(ROOT / "policies"), strict=True):
        assert path.stat().st_size < 300_000
        state = load_checkpoint(path, script=None)
        assert path.name == f"{state['args']['env_id']}__{state['script']}.pt"
        assert cells == export.table_row(path.name, state).strip("| ").split(" | ")
        assert "not recorded" not in cells


def test_the_shipped_policy_swings_the_pendulum_up(tmp_path):
    told = evaluated("rsac", POLICY, tmp_path, "--eval-episodes", 20)
    assert told["episodes"] == 20
    assert told["return_mean"] > -200


def test_the_python_example_of_the_page_of_policies_swings_the_pendulum_up():
    (code,) = [
        b for language, b in fences((DOCS / "policies.md").read_text()) if language == "python"
    ]
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    returns = list(map(float, done.stdout.split()))
    assert len(returns) == 3
    assert max(returns) > -400


def test_a_run_cannot_go_on_from_an_exported_policy(tmp_path):
    ended = run("rsac", ["--resume", POLICY], tmp_path)
    assert ended.code == 2
    assert "holds no run: it has no args.json; --evaluate plays a policy" in ended.err


@pytest.mark.parametrize("which", ["Dict", "Tuple", "Table"])
def test_a_policy_reads_the_parts_of_an_observation(which, tmp_path):
    name = f"toy_envs:Toy{which}-v0"
    folder = train("sac", tiny("sac", env=name), tmp_path)
    told = evaluated("sac", folder, tmp_path, "--env-id", name, "--seed", 5)
    returns = play(load(folder, env_id=name), name, make_seeds("test", 5, count=4))
    assert np.mean(returns) == pytest.approx(told["return_mean"], rel=1e-4)


def test_a_film_of_an_exported_policy_lies_beside_it(tmp_path):
    path = tmp_path / POLICY.name
    shutil.copy(POLICY, path)
    ended = run("rsac", ["--evaluate", path, "--eval-episodes", 1, "--video"], tmp_path)
    assert ended.code == 0, ended.err
    assert (tmp_path / "evaluation-seed0.mp4").stat().st_size > 0
