"""benchmark.film: an episode beside what the policy observes, does and remembers."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from script_runs import ROOT, env_id, run, tiny, train

import envs.__main__
from benchmark import film, open_run
from common.errors import RunError, UserError
from envs.drawing import write_film


@pytest.mark.parametrize("script", ["sac", "rsac", "conv_sac"])
def test_an_episode_is_filmed_with_its_panels(script, tmp_path):
    folder, out = train(script, tiny(script), tmp_path), tmp_path / "film.gif"
    yours = env_id(script)
    film.main(film.parse_args([str(folder), str(out), "--seed", "2", "--env-id", yours]))
    frames = imageio.imread(out)
    options = ["--seed", 2, "--eval-episodes", 1, "--video"]
    agent, envs = open_run(folder, *options, env_id=yours)
    pictures, values = film.play(agent, envs, 2, every=1)
    panels = {"sac": ["observation", "action"], "conv_sac": ["action"]}
    assert list(values) == panels.get(script, ["observation", "action", "memory"])
    if "observation" in values:
        assert values["observation"].shape[1] == 3  # without the previous action
    assert len(frames) == len(pictures) == len(values["action"])
    assert frames.shape[1] == film.LEAST_HEIGHT
    assert frames.shape[2] > pictures[0].shape[1] + 2 * film.SHOWN


@pytest.mark.slow
def test_every_kth_picture_is_kept_for_k_times_as_long(tmp_path):
    folder = train("sac", tiny("sac", env="pendulum-p-v0"), tmp_path)
    found = []
    for every in (1, 7):
        out = tmp_path / f"{every}.gif"
        film.main(film.parse_args([str(folder), str(out), "--every", str(every)]))
        found.append((len(imageio.imread(out)), imageio.immeta(out)["duration"]))
    (all_of_them, short), (some, long) = found
    assert (all_of_them, some) == (200, 29)
    assert long == pytest.approx(7 * short, abs=10)  # a GIF counts in 10 ms


def test_a_panel_shows_the_last_steps_and_their_sign():
    values = np.linspace(-1, 1, 300)[:, None]
    early, late = (
        film.beside(np.zeros((4, 4, 3), np.uint8), {"memory": values}, k) for k in (10, 299)
    )
    row, left = 150, 4 + film.MARGIN
    assert (early[row, left] == [0, 0, 255]).all(), "-1 is blue"
    assert (early[row, left + film.STEP * 20] == 255).all(), "nothing yet"
    assert (late[row, left + film.STEP * (film.SHOWN - 1)] == [255, 0, 0]).all(), "1 is red"


BAD = {
    "no run": (["nowhere", "film.gif"], "nowhere"),
    "no checkpoint": (["README.md", "film.gif"], "README.md is no checkpoint"),
    "a folder without one": (["docs", "film.gif"], "docs/checkpoint.pt"),
    "another format": (["nowhere", "film.png"], "must end in .gif or .mp4"),
    "no place": (["RUN", "nowhere/film.gif"], "there is no folder nowhere"),
    "no pictures": (["RUN", "film.gif"], "does not draw pictures"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(what, tmp_path):
    words, expected = BAD[what]
    if "RUN" in words:
        yours = "probes:Velocity-v0"
        folder = train("sac", tiny("sac", env=yours), tmp_path)
        words = [str(folder), *words[1:], "--env-id", yours]
    done = subprocess.run(
        [sys.executable, "-m", "benchmark.film", *words],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    *_, last = done.stderr.splitlines()
    assert expected in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_an_episode_of_random_actions_is_filmed(suffix, tmp_path):
    path = tmp_path / f"clip{suffix}"
    envs.__main__.main(["pendulum-v0", "--video", str(path), "--steps", "4"])
    assert len(imageio.imread(path)) == 5
    assert list(tmp_path.iterdir()) == [path]


def test_a_film_that_cannot_grow_is_one_error_and_the_old_one_is_kept(tmp_path):
    policy, old = tmp_path / "pendulum-p-v0__rsac.pt", tmp_path / "evaluation-seed0.mp4"
    shutil.copy(ROOT / "policies" / policy.name, policy)
    old.write_text("an earlier film")
    words = ["--evaluate", str(policy), "--video", "--eval-episodes", "1"]
    ended = run("rsac", words, tmp_path, "file_size_limit", 3000)
    assert ended.code == 1
    assert f"cannot write {old}" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
    assert old.read_text() == "an earlier film"
    assert not list(tmp_path.glob(".*"))


def test_a_film_without_its_end_is_not_kept(tmp_path, monkeypatch):
    """imageio does not say that ffmpeg failed."""

    class Cut:
        def append_data(self, frame):
            Path(self.path).write_bytes(b"ftyp, and then the disk was full")

        def close(self):
            pass

    def get_writer(path, **options):
        writer = Cut()
        writer.path = path
        return writer

    monkeypatch.setattr("imageio.v2.get_writer", get_writer)
    with pytest.raises(RunError, match="the film is not complete"):
        write_film(tmp_path / "film.mp4", [np.zeros((4, 4, 3), np.uint8)], 10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["film.gif", "film.mp4"])
@pytest.mark.parametrize("wrong", [np.zeros((9, 8, 3), np.uint8), np.zeros((8, 8)), [], None])
def test_a_picture_that_does_not_fit_ends_the_film_and_leaves_nothing(wrong, name, tmp_path):
    pictures = [np.zeros((8, 8, 3), np.uint8)] * 3
    with pytest.raises(UserError, match=r"does not draw pictures|change their shape"):
        write_film(tmp_path / name, [*pictures, wrong], 10)
    gc.collect()  # imageio's writer closes at the latest when it is deleted
    assert list(tmp_path.iterdir()) == []


def test_without_pygame_a_film_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(UserError, match="drawing needs pygame"):
        envs.__main__.main(["pendulum-v0", "--video", str(tmp_path / "clip.gif")])
    assert list(tmp_path.iterdir()) == []


def test_the_episode_of_the_seed_is_filmed(tmp_path, monkeypatch):
    seeds, real = [], film.play
    monkeypatch.setattr(film, "play", lambda *x: seeds.append(x[2]) or real(*x))
    words = [str(train("sac", tiny("sac"), tmp_path)), str(tmp_path / "film.gif")]
    film.main(film.parse_args([*words, "--seed", "2", "--env-id", env_id("sac")]))
    assert seeds == [2]
