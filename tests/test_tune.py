"""benchmark.tune: searches, as processes, on a script without learning."""

import importlib
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmark.tune import read_space
from common.errors import UserError

optuna = pytest.importorskip(
    "optuna", reason="Optuna is not installed: pip install -r requirements-tune.txt"
)
ROOT = Path(__file__).parent.parent
FAKE = ["--script", "tests/fake_script.py", "--env-id", "pendulum-p-v0"]
TRIAL = re.compile(r"trial (\d+): (cut short|\S+), --gain (\S+)")


def start(folder, *words, space="--gain log 0.1 10"):
    """A search whose files are in `folder`; its value is --gain times the last step, about."""
    folder.mkdir(exist_ok=True)
    (folder / "space.txt").write_text(f"# a comment\n\n{space}\n")
    command = [sys.executable, "-m", "benchmark.tune", *FAKE, "--space", folder / "space.txt"]
    command += ["--log-dir", folder / "tune", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    return subprocess.Popen(list(map(str, command)), **pipes)


def end(process):
    """Exit code, stdout and stderr."""
    out, err = process.communicate(timeout=250)
    return process.returncode, out, err


def trace(folder):
    """How often each (run, step) was computed."""
    path = folder / "tune" / "trace.txt"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def test_the_best_of_all_settings_is_told_and_drawn(tmp_path):
    words = ["--trials", 3, "--seeds", 0, 4, "--", "--total-steps", 1000]
    code, out, err = end(start(tmp_path, *words))
    assert code == 0, err
    *trials, best, command = out.splitlines()
    found = [TRIAL.fullmatch(line).groups() for line in trials]
    assert [number for number, _, _ in found] == ["0", "1", "2"]
    for _, value, gain in found:  # the last tenth is steps 900 and 1000, the mean seed is 2
        assert float(value) == pytest.approx(950 * float(gain) + 2, abs=0.06)
    number, value, gain = max(found, key=lambda x: float(x[1]))
    assert best.startswith(f"best: trial {number}, {value}; plots are in ")
    options = f"--env-id pendulum-p-v0 --total-steps 1000 --gain {gain}"
    assert command == f"python tests/fake_script.py {options}"
    assert len(trace(tmp_path)) == 3 * 2 * 11
    pictures = list((tmp_path / "tune").glob("*.png"))
    assert len(pictures) == 4
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    before = trace(tmp_path)
    code, again, _ = end(start(tmp_path, *words))  # there is nothing left to do
    assert (code, again.splitlines()) == (0, [best, command])
    assert trace(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_search_that_was_killed_goes_on_and_repeats_nothing(tmp_path, number):
    words = ["--trials", 2, "--", "--total-steps", 600, "--seconds-per-row", 0.5]
    first = start(tmp_path, *words)
    while sum(trace(tmp_path).values()) < 18:  # in the second of two trials of 2 x 7 rows
        assert first.poll() is None, end(first)
        time.sleep(0.05)
    first.send_signal(number)
    _, told, _ = end(first)
    assert told.startswith("trial 0: ")
    assert sum(trace(tmp_path).values()) < 28, "the kill came too late to test anything"
    code, out, err = end(start(tmp_path, *words))
    assert code == 0, err
    assert "trial 0: " not in out
    assert len(trace(tmp_path)) == 28
    assert set(trace(tmp_path).values()) == {1}


@pytest.mark.slow
def test_two_workers_share_one_search(tmp_path):
    words = ["--trials", 6, "--seeds", 0, "--", "--total-steps", 300, "--seconds-per-row", 0.5]
    ended = [end(worker) for worker in [start(tmp_path, *words), start(tmp_path, *words)]]
    assert [code for code, _, _ in ended] == [0, 0], ended
    mine, other = ([m[0] for m in TRIAL.findall(out)] for _, out, _ in ended)
    assert mine
    assert other
    assert not set(mine) & set(other)
    assert len(mine + other) in (6, 7)  # both may take the last one at the same instant
    assert set(trace(tmp_path).values()) == {1}


@pytest.mark.slow
def test_a_setting_below_the_median_is_cut_short(tmp_path):
    words = ["--trials", 12, "--prune-after", 300, "--seeds", 0, 1]
    words += ["--", "--total-steps", 1000, "--seconds-per-row", 0.1]
    code, out, err = end(start(tmp_path, *words))
    assert code == 0, err
    found = [m[1:] for m in TRIAL.findall(out)]
    gains = [float(gain) for value, gain in found if value != "cut short"]
    cut = [float(gain) for value, gain in found if value == "cut short"]
    assert cut
    assert max(cut) < max(gains)
    rows = Counter(line.split()[0] for line in trace(tmp_path))
    assert all(4 <= count <= 11 for count in rows.values())  # none before step 300
    assert min(rows.values()) < 11
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path}/tune/study.db")
    for trial in study.trials:  # the mean seed is 0.5
        gain = float(f"{trial.params['--gain']:.6g}")
        assert trial.intermediate_values[200] == pytest.approx(200 * gain + 0.5)


def test_a_setting_with_which_a_run_fails_is_passed_over(tmp_path):
    words = ["--trials", 2, "--seeds", 0, 1, "--", "--fail-at-seed", 1, "--total-steps", 300]
    code, out, err = end(start(tmp_path, *words))
    assert (code, len(TRIAL.findall(out))) == (2, 2)
    assert [value for _, value, _ in TRIAL.findall(out)] == ["cut short", "cut short"]
    assert err.count("the simulator fell over") == 2
    assert "no trial finished" in err.splitlines()[-1]


def test_a_setting_that_the_script_refuses_later_is_passed_over(tmp_path):
    (tmp_path / "picky.py").write_text(PICKY)
    words = ["--script", tmp_path / "picky.py", "--trials", 3, "--seeds", 0]
    words += ["--", "--total-steps", 100]
    code, out, err = end(start(tmp_path, *words))
    assert code == 0, err
    assert [value for _, value, _ in TRIAL.findall(out)] == ["1.0", "cut short", "cut short"]
    assert err.count("this gain is refused") == 2


PICKY = """
import sys
from pathlib import Path

given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = Path(given["--run-dir"])
if (folder.parent / "begun").exists():
    sys.exit(print("this gain is refused") or 2)
(folder.parent / "begun").touch()
folder.mkdir()
rows = "global_step,wall_seconds,eval_return_mean\\n0,0,1\\n100,1,1\\n"
(folder / "progress.csv").write_text(rows)
"""

BAD = {
    "no script": (["--script", "rsax"], "", "unknown script 'rsax'; did you mean"),
    "no environment": (["--env-id", "pendulm-p-v0"], "", "unknown environment 'pendulm-p-v0'"),
    "no space": (["--space", "nowhere.txt"], "", "nowhere.txt: No such file"),
    "no trials": (["--trials", "0"], "", "--trials: must be a whole number at least 1"),
    "an option of the search": (["--", "--seed", "3"], "", "--seed after -- is not allowed"),
    "an option that no run knows": (["--", "--gian", "3"], "", "unrecognized arguments: --gian"),
    "an option of the space, too": ([], "--gian log 1 2", "unrecognized arguments: --gian"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(case, tmp_path):
    words, space, says = BAD[case]
    options = {"space": space} if space else {}
    code, out, err = end(start(tmp_path, *words, **options))
    assert (code, out) == (2, ""), err
    assert says in err
    assert err.count("\n") == 1


def test_a_mistake_can_be_corrected_in_the_same_folder_and_another_search_is_refused(tmp_path):
    words = ["--trials", 1, "--seeds", 0, "--", "--total-steps", 200]
    assert end(start(tmp_path, *words, "--gian", 1))[0] == 2
    for choices in ("x y", "x y z"):
        assert end(start(tmp_path, *words, space=f"--seconds-per-row choice {choices}"))[0] == 2
    assert end(start(tmp_path, *words))[0] == 0
    for other, space in ((["--fail-at-seed", 3], "--gain log 0.1 10"), ([], "--gain log 0.1 9")):
        code, _, err = end(start(tmp_path, *words, *other, space=space))
        assert code == 2
        assert "has the search of another command" in err


def test_another_command_does_not_touch_a_search_in_its_first_trial(tmp_path):
    words = ["--trials", 1, "--seeds", 0, "--", "--seconds-per-row", 0.5, "--total-steps"]
    first = start(tmp_path, *words, 300)
    while not trace(tmp_path):
        assert first.poll() is None, end(first)
        time.sleep(0.05)
    for other in ((400,), (300, "--gian", 1)):
        code, out, err = end(start(tmp_path, *words, *other))
        assert (code, out) == (2, "")
        assert "has the search of another command" in err
    assert end(first)[0] == 0
    assert end(start(tmp_path, *words, 300))[0] == 0


def test_a_damaged_study_is_one_line(tmp_path):
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "study.db").write_text("no database")
    code, out, err = end(start(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "tune/study.db: file is not a database; use another --log-dir" in err


@pytest.mark.parametrize(
    "line",
    ["--lr", "--lr log", "--lr log 1", "--lr log 0 1", "--lr log 2 1", "--lr log a b", "--lr 1 2",
     "--lr log 1 2 3", "--lr choice", "--lr 'choice", ""],
)  # fmt: skip
def test_a_space_that_cannot_be_read_is_refused(line, tmp_path):
    (tmp_path / "space.txt").write_text(f"--tau log 0.1 1\n{line}\n" if line else "# nothing\n")
    with pytest.raises(UserError, match=r"space\.txt"):
        read_space(tmp_path / "space.txt")


@pytest.mark.parametrize("path", sorted((ROOT / "benchmark/spaces").glob("*.txt")), ids=str)
def test_every_setting_of_a_committed_space_is_accepted_by_its_script(path):
    space, module = read_space(path), importlib.import_module(path.stem)
    for last in (False, True):
        words = []
        for option, values in space.items():
            ends = getattr(values, "choices", None) or (values.low, values.high)
            words += [option, *str(ends[-1 if last else 0]).split()]
        module.parse_args(words)
