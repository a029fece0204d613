"""benchmark.plot, and the statistics of benchmark.baselines."""

import csv
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmark import baselines, plot
from common.errors import UserError

ROOT = Path(__file__).parent.parent
HEAD = "global_step,num_updates,wall_seconds,train_return_mean,eval_return_mean,steps_per_second\n"


def write_run(folder, name, values, every=100, seconds=2.0):
    """A run folder whose evaluations, every 100 steps and 2 s, are `values`."""
    path = folder / name / "progress.csv"
    path.parent.mkdir(parents=True)
    lines = [f"{k * every},0,{k * seconds},nan,{v},50\n" for k, v in enumerate(values)]
    path.write_text(HEAD + "".join(lines))
    return path


def read(*paths):
    """The runs found and the list of (file name's folder, reason) skipped."""
    skipped = []
    runs = plot.read_runs(
        list(paths), lambda path, why: skipped.append((path.parent.name, str(why)))
    )
    return runs, skipped


def call(*words):
    command = [sys.executable, "-m", "benchmark.plot", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


# ---- Reading ----


def test_environment_algorithm_and_seed_come_from_the_folder(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac_sharing__7__20260101-000000", [1, 2])
    (run,), _ = read(tmp_path)
    assert (run.env_id, run.algorithm, run.seed) == ("pendulum-p-v0", "rsac_sharing", "7")
    assert run.step.tolist() == [0, 100]
    assert run.seconds.tolist() == [0, 2]
    assert run.value.tolist() == [1, 2]


DAMAGE = {
    "empty": ("", "empty"),
    "header only": (HEAD, "no rows"),
    "cut off": (HEAD + "0,0,1,nan,5,50\n100,0,2,na", "line 3 is cut off"),
    "no number": (HEAD + "0,0,1,nan,5,50\n100,0,2,nan,five,50\n", "line 3 has no number"),
    "a cell missing": (HEAD + "0,0,1,nan\n", "line 2 has no number"),
    "a return that is nan": (HEAD + "0,0,1,nan,5,50\n100,0,2,nan,nan,50\n", "line 3 has no usable"),
    "a return beyond all plots": (HEAD + "0,0,1,nan,-1e308,50\n", "line 2 has no usable"),
    "steps that fall": (HEAD + "100,0,1,nan,5,50\n0,0,2,nan,5,50\n", "line 3 does not come after"),
    "another table": ("a,b\n1,2\n", "global_step is missing"),
    "comments alone": ("# here\n", "global_step is missing"),
    "after comments": ("# here\n" + HEAD + "0,0,1,nan,five,50\n", "line 3 has no number"),
    "no text": ("\x00\x01\n", "missing"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_is_named_and_skipped(tmp_path, what):
    text, reason = DAMAGE[what]
    write_run(tmp_path, "pendulum-p-v0__rsac__0", [1, 2])
    write_run(tmp_path, "pendulum-p-v0__rsac__1", [1, 2]).write_text(text)
    runs, skipped = read(tmp_path)
    assert [run.seed for run in runs] == ["0"]
    assert skipped[0][0] == "pendulum-p-v0__rsac__1"
    assert reason in skipped[0][1]


def test_bytes_that_are_no_text_are_skipped(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac__1", [1, 2]).write_bytes(b"\xff\xfe\x00")
    runs, skipped = read(tmp_path)
    assert runs == []
    assert len(skipped) == 1


def test_a_shorter_run_is_named_and_left_out_unless_asked_for(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac__0", [0, 0, 0])
    write_run(tmp_path, "pendulum-p-v0__rsac__1", [0, 0])
    write_run(tmp_path, "pendulum-p-v0__sac__0", [0, 0])
    result = call(tmp_path, "--out", tmp_path / "a")
    assert re.search(r"skipped .*rsac__1.*partial, 100 of 200 steps", result.stderr)
    assert "sac__0" not in result.stderr.replace("rsac__0", "")
    assert "partial" not in call(tmp_path, "--partial", "--out", tmp_path / "a").stderr


def test_a_run_that_was_cut_off_is_named_and_left_out(tmp_path):
    folder = tmp_path / "pendulum-p-v0__rsac__0"
    folder.mkdir()
    (folder / "progress.csv").write_text("global_step,wall_seconds,eval_return_mean\n200,1.0,-9\n")
    (folder / "args.json").write_text('{"total_steps": 300}')
    (run,) = plot.read_runs([tmp_path], print)
    shorter = replace(run, step=run.step - 100, total=100, seed="1")  # finished
    skipped = []
    assert plot.drop_partial([run, shorter], lambda *told: skipped.append(told)) == [shorter]
    assert skipped == [(run.path, "partial, 200 of 300 steps; see --partial")]


def test_a_repeated_run_counts_once(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac__0__20260101-000000", [0, 1])
    write_run(tmp_path, "pendulum-p-v0__rsac__0__20260102-000000", [0, 2])
    skipped = []
    runs = plot.drop_repeated(read(tmp_path)[0], lambda path, why: skipped.append(path))
    assert [run.value[-1] for run in runs] == [2]
    assert len(skipped) == 1


def test_of_repeated_runs_a_whole_one_counts_more_than_a_later_part(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac__0__20260101-000000", [0, 1, 5])
    write_run(tmp_path, "pendulum-p-v0__rsac__0__20260102-000000", [0, 2])
    write_run(tmp_path, "pendulum-p-v0__rsac__1__20260101-000000", [0, 1, 7])
    result = call(tmp_path, "--out", tmp_path / "out")
    assert result.stderr.count("skipped") == 1
    assert "| pendulum-p-v0 | rsac | 6.0 |" in result.stdout


BAD = {
    "another table": (["--baselines", "README.md"], "README.md is not a table"),
    "baselines that are a folder": (["--baselines", "docs"], "docs: Is a directory"),
    "a long name": (["--out", "x" * 300], "File name too long"),
    "no name": (["--out", "/"], "has no file name"),
    "a path that is none": (["nowhere"], "there is no nowhere"),
    "an environment without runs": (["--env-ids", "nope"], "no runs found"),
    "few resamples": (["--bootstrap", "5"], "at least 100"),
    "a folder below a file": (["--out", "README.md/curves"], "README.md: File exists"),
    "a folder that is a file": (["--collect", "README.md"], "README.md: File exists"),
    "a folder without a name for files": (["--out", "."], "--out . has no file name"),
    "a folder that cannot be written in": (["--collect", "/proc"], "/proc"),
    "baselines that are not there": (["--baselines", "bars.csv"], "bars.csv: No such file"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line(tmp_path, what):
    words, says = BAD[what]
    write_run(tmp_path, "pendulum-p-v0__rsac__0", [0, 1])
    result = call(tmp_path, *words)
    assert result.returncode == 2
    (line,) = [x for x in result.stderr.splitlines() if not x.startswith("no run of ")]
    assert says in line


def test_numbers_that_no_plot_can_show_are_no_bars(tmp_path):
    path = tmp_path / "bars.csv"
    for mean in ("nan", "inf", "-1e308", ""):
        path.write_text(f"env_id,controller,mean\ne-v0,zero,{mean}\n")
        with pytest.raises(UserError, match="not a table"):
            plot.read_baselines(path)


def write_settings(path, **settings):
    """The args.json beside a progress.csv."""
    given = {"seed": 0, "lr": 0.001, "hidden_dims": [64, 64], "total_steps": 100} | settings
    path.with_name("args.json").write_text(json.dumps(given))


def settings_of_two(folder, first, second):
    for k, settings in enumerate((first, second)):
        path = write_run(folder, f"pendulum-p-v0__rsac__{k}", [0, 10 * k])
        write_settings(path, **settings)
    told = []
    return plot.split_settings(read(folder)[0], told.append), told


@pytest.mark.parametrize(
    ("file", "text"),
    [("args.json", '{"total_steps": "1000"}'), ("args.json", "[1]"), ("run.json", "[1]")],
)
def test_a_run_with_damaged_arguments_or_origin_is_skipped(tmp_path, file, text):
    write_run(tmp_path, "pendulum-p-v0__rsac__1", [1, 2]).with_name(file).write_text(text)
    runs, ((_, why),) = read(tmp_path)
    assert runs == []
    assert f"{file} is damaged" in why


@pytest.mark.parametrize(
    ("name", "values", "labels"),
    [
        ("lr", (0.001, 0.002), ["rsac-lr=0.001", "rsac-lr=0.002"]),
        ("hidden_dims", ([64, 64], [64]), ["rsac-hidden_dims=64-64", "rsac-hidden_dims=64"]),
        ("target_entropy", (-1.0, None), ["rsac-target_entropy=-1.0", "rsac-target_entropy=null"]),
        ("new", (True, None), ["rsac-new=true", "rsac-new=null"]),  # of later code
    ],
)
def test_runs_with_other_arguments_are_lines_of_their_own(tmp_path, name, values, labels):
    runs, told = settings_of_two(tmp_path, *({name: value} for value in values))
    assert [run.algorithm for run in runs] == labels
    assert told == [f"pendulum-p-v0, rsac: runs differ in {name}: drawn apart"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"seed": 3, "run_dir": "a"}, {"seed": 4, "run_dir": "b"}),
        ({"device": "cpu", "num_threads": 1}, {"device": "cuda", "num_threads": 2}),
        ({"resume": None, "video": True}, {"resume": "runs/a", "video": False}),
        ({"total_steps": 100}, {"total_steps": 200}),  # one was made longer later
    ],
)
def test_arguments_that_change_no_result_do_not_split_a_line(tmp_path, first, second):
    runs, told = settings_of_two(tmp_path, first, second)
    assert [run.algorithm for run in runs] == ["rsac", "rsac"]
    assert told == []


def test_both_lines_are_in_the_table_and_the_argument_is_named(tmp_path):
    settings_of_two(tmp_path / "runs", {"lr": 0.001}, {"lr": 0.002, "seed": 1})
    result = call(tmp_path / "runs", "--out", tmp_path / "out")
    assert "runs differ in lr: drawn apart" in result.stderr
    for name, rows in (("rsac-lr=0.001", 1), ("rsac", 2)):
        result = call(tmp_path / "runs", "--algorithms", name, "--out", tmp_path / "one")
        assert result.stdout.count("| rsac-lr=0.00") == rows
        assert "no run of" not in result.stderr
    assert "| pendulum-p-v0 | rsac-lr=0.001 | 0.0 |" in result.stdout
    assert "| pendulum-p-v0 | rsac-lr=0.002 | 10.0 |" in result.stdout
    call(tmp_path / "runs", "--collect", tmp_path / "small")
    again = call(tmp_path / "small", "--out", tmp_path / "out")
    assert again.stdout == result.stdout, "copies keep them apart"


@pytest.mark.parametrize("text", ['{"lr": 0.0', "[1, 2]", "5", "\x00"])
def test_damaged_arguments_are_named_and_their_run_skipped(text, tmp_path):
    path = write_run(tmp_path, "pendulum-p-v0__rsac__0", [0, 1])
    path.with_name("args.json").write_text(text)
    runs, ((name, why),) = read(tmp_path)
    assert runs == []
    assert name == "pendulum-p-v0__rsac__0"
    assert "args.json is damaged" in why


def test_collected_runs_read_back_as_they_were(tmp_path):
    write_run(tmp_path / "runs", "pendulum-p-v0__rsac__3", [-1234.5678, -150.25])
    call(tmp_path / "runs", "--collect", tmp_path / "results")
    (run,), _ = read(tmp_path / "results")
    assert (run.env_id, run.algorithm, run.seed) == ("pendulum-p-v0", "rsac", "3")
    assert run.value.tolist() == [-1234.6, -150.25]
    assert run.step.tolist() == [0, 100]


def test_a_collected_curve_is_not_replaced_by_a_shorter_one(tmp_path):
    name = "pendulum-p-v0__rsac__3"
    for folder, values in (("long", [1, 2, 3]), ("short", [7, 8]), ("same", [4, 5, 6])):
        write_run(tmp_path / folder, name, values)
        result = call(tmp_path / folder, "--collect", tmp_path / "results")
        assert ("is longer" in result.stderr) == (folder == "short")
        (run,), _ = read(tmp_path / "results")
        assert run.value.tolist() == ([4, 5, 6] if folder == "same" else [1, 2, 3])


def test_a_collected_curve_carries_where_it_comes_from(tmp_path):
    path = write_run(tmp_path / "runs", "pendulum-p-v0__rsac__3", [1, 2])
    origins = [
        {"command": "python rsac.py", "commit": "abc"},
        {"command": "python rsac.py --resume"},
    ]
    path.with_name("run.json").write_text(json.dumps(origins))
    for source, target in (("runs", "small"), ("small", "again")):
        call(tmp_path / source, "--collect", tmp_path / target)
        text = (tmp_path / target / "pendulum-p-v0__rsac__3.csv").read_text()
        assert [json.loads(line[1:]) for line in text.splitlines()[:2]] == origins
    (run,), _ = read(tmp_path / "again")
    assert run.value.tolist() == [1, 2]


def test_an_unknown_command_is_not_waited_for(tmp_path):
    path = write_run(tmp_path, "pendulum-p-v0__rsac__0", [0, 1])
    path.with_name("run.json").write_text('[{"command": null}]')
    assert plot.without_folder(*plot.read_origins(path)) == {"command": ""}


@pytest.mark.parametrize(
    "text", ["[{", "5", '{"commit": "abc"}', '[{"command": 5}]', '[{"command": "it\'s"}]']
)
def test_a_damaged_run_json_is_named_and_its_run_skipped(text, tmp_path):
    path = write_run(tmp_path, "pendulum-p-v0__rsac__0", [0, 1])
    path.with_name("run.json").write_text(text)
    runs, ((_, why),) = read(tmp_path)
    assert runs == []
    assert "run.json is damaged" in why


@pytest.mark.parametrize("make", [True, False])
def test_no_runs_found_is_one_line(tmp_path, make):
    folder = tmp_path / "runs"
    if make:
        folder.mkdir()
    result = call(folder)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert str(folder) in result.stderr


# ---- Statistics ----


def test_the_final_return_is_the_mean_of_the_last_tenth(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac__0", range(21))  # steps 0 to 2000: from 1800 on
    (run,), _ = read(tmp_path)
    assert run.final() == (18 + 19 + 20) / 3


def test_curves_are_aligned_by_step_without_interpolation(tmp_path):
    write_run(tmp_path, "e-v0__rsac__0", [0, 1, 2, 3, 4], every=100)
    write_run(tmp_path, "e-v0__rsac__1", [10, 12, 14], every=200)
    steps, seconds, values = plot.align(read(tmp_path)[0])
    assert steps.tolist() == [0, 200, 400]
    assert values.tolist() == [[0, 2, 4], [10, 12, 14]]
    assert seconds.tolist() == [0, (4 + 2) / 2, (8 + 4) / 2]


def test_a_run_that_is_over_no_longer_counts(tmp_path):
    write_run(tmp_path, "e-v0__rsac__0", [0, 1, 2])
    write_run(tmp_path, "e-v0__rsac__1", [4, 5])
    steps, _, values = plot.align(read(tmp_path)[0])
    assert steps.tolist() == [0, 100, 200]
    assert np.nanmean(values, axis=0).tolist() == [2, 3, 2]


def test_the_interval_is_that_of_a_bootstrap_by_hand():
    values = np.array([[3.0], [1.0], [7.0], [2.0]])
    means = sorted(
        (values[a] + values[b] + values[c] + values[d]).item() / 4
        for a in range(4)
        for b in range(4)
        for c in range(4)
        for d in range(4)
    )
    low, high = plot.bootstrap(values, 20_000)
    assert low[0] == pytest.approx(np.percentile(means, 2.5), abs=0.26)  # one step of the means
    assert high[0] == pytest.approx(np.percentile(means, 97.5), abs=0.26)


def test_one_seed_has_no_interval():
    low, high = plot.bootstrap(np.array([[3.0, 4.0]]), 200)
    assert np.isnan([*low, *high]).all()


def test_the_interquartile_mean_drops_a_quarter_at_each_end():
    # Scores 0..7 in two tasks with four seeds each: 0, 1 and 6, 7 go.
    scores = [np.array([[0.0], [6.0], [2.0], [4.0]]), np.array([[1.0], [7.0], [3.0], [5.0]])]
    iqm, low, high = plot.interquartile_mean(scores, 500)
    assert iqm[0] == (2 + 3 + 4 + 5) / 4
    assert low[0] < iqm[0] < high[0]


def test_seeds_are_resampled_within_their_task():
    # Without a difference between seeds there is nothing to resample, however tasks differ.
    scores = [np.full((3, 1), 0.0), np.full((3, 1), 1.0), np.full((3, 1), 5.0)]
    iqm, low, high = plot.interquartile_mean(scores, 500)
    assert low[0] == iqm[0] == high[0]


def test_scores_are_0_for_random_actions_and_1_for_the_best(tmp_path):
    for env in ("a-v0", "b-v0"):
        write_run(tmp_path, f"{env}__rsac__0", [-100, 0, 50])
        write_run(tmp_path, f"{env}__sac__0", [-100, 0, -25])
    panels = plot.make_panels(read(tmp_path)[0])
    bars = {"a-v0": [("random", -100.0)], "b-v0": [("random", -100.0)]}
    tasks, left_out, result = plot.across_tasks(panels, bars, 200)
    assert tasks == ["a-v0", "b-v0"]
    assert left_out == []
    assert result["rsac"]["final"][1][0] == 1
    assert result["sac"]["final"][1][0] == pytest.approx((-25 + 100) / (50 + 100))
    table = plot.make_table(panels, {"rsac": None, "sac": None}, bars, (tasks, [], result), 200)
    rows = ["| rsac | 1.000 | - | 0.333 | - |", "| sac | 0.500 | - | 0.333 | - |"]  # one seed
    assert table.splitlines()[-2:] == rows


def test_the_mean_over_minutes_ends_with_the_shortest_run_of_the_task(tmp_path):
    for env in ("a-v0", "b-v0"):  # an evaluation every 2 s
        write_run(tmp_path, f"{env}__rsac__0", [0, 8, 8, 8, 8])
        write_run(tmp_path, f"{env}__sac__0", [0, 0, 0, 6, 10])
        write_run(tmp_path, f"{env}__td3__0", [0, 4, 6, 6])  # over after 6 s
    bars = {f"{env}-v0": [("random", 0.0)] for env in "ab"}
    _, _, result = plot.across_tasks(plot.make_panels(read(tmp_path)[0]), bars, 200)
    mean = {label: parts["minutes"][1][0] for label, parts in result.items()}
    assert mean["rsac"] == pytest.approx((0 + 8 + 8) / 3 / 10, abs=1e-3)  # of 1,000 points
    assert mean["td3"] == pytest.approx((0 + 4 + 6) / 3 / 10, abs=1e-3)
    assert mean["sac"] == 0, "it is best in the end, which is later"


def test_an_algorithm_that_lacks_a_task_is_left_out_of_the_mean(tmp_path):
    for name in ("a-v0__rsac", "b-v0__rsac", "a-v0__sac", "b-v0__sac", "a-v0__rdpg"):
        write_run(tmp_path, f"{name}__0", [0, 1])
    _, left_out, result = plot.across_tasks(plot.make_panels(read(tmp_path)[0]), {}, 200)
    assert left_out == ["rdpg"]
    assert set(result) == {"rsac", "sac"}


def test_the_mean_is_over_the_tasks_and_algorithms_that_keep_most(tmp_path):
    for env in "abcd":
        for name in ("rsac", "rtd3", "sac"):
            write_run(tmp_path, f"{env}-v0__{name}__0", [0, 1])
    for env in "abcde":  # one task more, and one algorithm with half of them
        write_run(tmp_path, f"{env}-v0__rdpg__0", [0, 1])
    for env in "ab":
        write_run(tmp_path, f"{env}-v0__td3__0", [0, 1])
    tasks, left_out, result = plot.across_tasks(plot.make_panels(read(tmp_path)[0]), {}, 200)
    assert tasks == ["a-v0", "b-v0", "c-v0", "d-v0"]
    assert set(result) == {"rsac", "rtd3", "sac", "rdpg"}
    assert left_out == ["td3", "e-v0"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_which_tasks_are_taken_does_not_depend_on_the_order_of_a_set(tmp_path, seed):
    for name in ("a-v0__rsac", "b-v0__rsac", "a-v0__rtd3", "b-v0__rtd3"):
        write_run(tmp_path, f"{name}__0", [0, 1])
    for name in ("c-v0__sac", "d-v0__sac", "c-v0__td3", "d-v0__td3"):  # as good a choice
        write_run(tmp_path, f"{name}__0", [0, 1])
    out = tmp_path / "out"
    words = [tmp_path, "--out", out, "--bootstrap", 100, "--baselines", "none"]
    words = [sys.executable, "-m", "benchmark.plot", *map(str, words)]
    env = os.environ | {"PYTHONHASHSEED": str(seed)}
    result = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert "Interquartile mean over a-v0, b-v0 (0" in result.stdout
    assert "not in the mean over 2 tasks: sac, td3, c-v0, d-v0" in result.stderr


def test_a_task_on_which_nobody_beats_random_actions_is_left_out_of_the_mean(tmp_path):
    for env in "abc":
        for name in ("rsac", "sac"):
            write_run(tmp_path, f"{env}-v0__{name}__0", [-100, -90])
    panels = plot.make_panels(read(tmp_path)[0])
    bars = {f"{env}-v0": [("random", -100.0)] for env in "ab"} | {"c-v0": [("random", -80.0)]}
    tasks, left_out, result = plot.across_tasks(panels, bars, 200)
    assert tasks == ["a-v0", "b-v0"]
    assert left_out == ["c-v0"]
    assert result["sac"]["final"][1][0] == 1
    bars["b-v0"] = [("random", 0.0)]
    assert plot.across_tasks(panels, bars, 200) is None


def test_where_there_is_no_mean_it_is_said_why(tmp_path):
    for name in ("a-v0__rsac", "b-v0__sac"):
        write_run(tmp_path, f"{name}__0", [0, 1])
    result = call(tmp_path, "--out", tmp_path / "out")
    assert result.returncode == 0
    assert "no mean across tasks: no two algorithms share two tasks" in result.stderr


# ---- Panels ----


def test_stacked_frames_and_the_full_state_are_drawn_beside_the_task(tmp_path):
    names = ["pendulum-p-v0__rsac", "pendulum-p-concat5-v0__sac"]
    for name in [*names, "pendulum-v0__sac", "pendulum-v0__rsac"]:
        write_run(tmp_path, f"{name}__0", [0, 1])
    panels = plot.make_panels(read(tmp_path)[0])
    assert set(panels["pendulum-p-v0"]) == {"rsac", "sac, 5 frames", "sac, full state"}
    assert set(panels["pendulum-v0"]) == {"sac", "rsac"}, "a memory is no bound for a memory"


def test_an_algorithm_of_ones_own_is_no_bound(tmp_path):
    for env in ("pendulum-p-v0", "pendulum-v0"):
        for algorithm in ("rsac_huber", "recurrent_ppo", "sac-alpha-1"):
            write_run(tmp_path, f"{env}__{algorithm}__0", [0, 1])
    panel = plot.make_panels(read(tmp_path)[0])["pendulum-p-v0"]
    assert set(panel) == {"rsac_huber", "recurrent_ppo", "sac-alpha-1", "sac-alpha-1, full state"}


def test_environments_are_asked_for_as_they_are_typed_elsewhere(tmp_path):
    write_run(tmp_path / "runs", "mine_Task-v0__rsac__0", [0, 1])
    write_run(tmp_path / "runs", "pendulum-p-v0__rsac__0", [0, 1])
    bars = tmp_path / "bars.csv"
    bars.write_text("env_id,controller,mean\nmine:Task-v0,random,0.5\n")
    words = ["--env-ids", "mine:Task-v0", "pendulum-v-v0", "--out", tmp_path / "out"]
    result = call(tmp_path / "runs", *words, "--baselines", bars)
    assert "| mine_Task-v0 | rsac |" in result.stdout
    assert "| mine_Task-v0 | *random* | 0.5 |" in result.stdout
    assert "pendulum-p-v0" not in result.stdout
    assert result.stderr == "no run of pendulum-v-v0\n"


def test_no_two_lines_look_alike_in_black_and_white():
    labels = {*plot.SCRIPTS, "sac, full state", "sac, 5 frames", "recurrent_ppo", "rsac-paper"}
    styles = plot.make_styles(labels, None)
    looks = {(style["linestyle"], style["marker"]) for style in styles.values()}
    assert len(looks) == len(labels)


def test_a_script_looks_the_same_whatever_else_is_drawn():
    few, many = plot.make_styles({"sac"}, None), plot.make_styles(set(plot.SCRIPTS), None)
    assert few["sac"] == many["sac"]


# ---- What is written ----


@pytest.fixture
def drawn(tmp_path):
    for env in ("pendulum-p-v0", "pendulum-va-v0"):
        for seed, final in enumerate((-100, -200, -300)):
            write_run(tmp_path / "runs", f"{env}__rsac__{seed}", [-1200, -600, final])
            write_run(tmp_path / "runs", f"{env}__sac__{seed}", [-1200, -1100, final - 700])
    bars = tmp_path / "bars.csv"
    bars.write_text("env_id,controller,mean\npendulum-p-v0,random,-1234.5\n")
    result = call(tmp_path / "runs", "--out", tmp_path / "out" / "curves", "--baselines", bars)
    assert result.returncode == 0, result.stderr
    return tmp_path / "out"


def test_figures_come_as_png_and_svg_and_a_table(drawn):
    parts = {"curves-steps", "curves-time", "curves-iqm"}
    names = {f"{part}.{suffix}" for part in parts for suffix in ("png", "svg")} | {"curves.md"}
    assert {path.name for path in drawn.iterdir()} == names
    assert (drawn / "curves-steps.png").read_bytes()[:4] == b"\x89PNG"
    assert "</svg>" in (drawn / "curves-steps.svg").read_text()


def table_cells(table, start):
    row = next(line for line in table.splitlines() if line.startswith(start))
    return [cell.strip() for cell in row.split("|")[1:-1]]


def test_the_table_has_final_returns_with_spread(drawn):
    table = (drawn / "curves.md").read_text()
    cells = table_cells(table, "| pendulum-p-v0 | rsac |")
    assert cells[2:] == ["-200.0", "100.0", "-300.0", "-100.0", "3", "200", "0.1"]
    finals = table.partition("Interquartile mean")[0]
    assert "interval" not in finals.lower(), "three seeds are too few for one"


def test_five_seeds_have_an_interval(tmp_path):
    for seed, last in enumerate([-100, -150, -200, -250, -300]):
        write_run(tmp_path, f"a-v0__rsac__{seed}", [-1000, last])
    write_run(tmp_path, "a-v0__sac__0", [-1000, -900])
    panels = plot.make_panels(read(tmp_path)[0])
    table = plot.make_table(panels, {"rsac": None, "sac": None}, {}, None, 500)
    assert table_cells(table, "| environment |")[3] == "95 % interval"
    low, high = map(float, table_cells(table, "| a-v0 | rsac |")[3].split(" to "))
    assert -300 < low < -200 < high < -100
    assert table_cells(table, "| a-v0 | sac |")[3] == "-"


def test_the_baselines_are_those_of_the_repository_wherever_one_is(tmp_path, monkeypatch):
    here = plot.read_baselines(plot.BASELINES)
    monkeypatch.chdir(tmp_path)
    assert here == plot.read_baselines(plot.BASELINES) != {}


def test_baselines_stand_in_the_table_below_the_curves(drawn):
    assert "| pendulum-p-v0 | *random* | -1234.5 |" in (drawn / "curves.md").read_text()


@pytest.mark.slow
def test_the_same_runs_give_the_same_files(drawn, tmp_path):
    words = ["--baselines", tmp_path / "bars.csv", "--out", tmp_path / "again" / "curves"]
    call(tmp_path / "runs", *words)
    for path in drawn.glob("*.svg"):
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_lines_of_a_figure_share_no_colour_while_there_are_enough():
    names = {"rdpg", "rdpg-noise-0.1", "rtd3", "rtd3-noise-0.1", "sac", "sac-alpha-1"}
    styles = plot.make_styles(names, None)
    assert len({style["color"] for style in styles.values()}) == len(names)


# ---- Baselines ----


def test_doing_nothing_on_the_pendulum_scores_what_its_equations_say():
    from common.envs import make_env

    (score, *_), _ = baselines.measure("pendulum-p-v0", "zero", 2, seed=5)
    env = make_env("pendulum-p-v0", 5)
    env.reset()
    th, thdot = env.unwrapped.state
    expected = 0.0
    for _ in range(200):
        wrapped = (th + np.pi) % (2 * np.pi) - np.pi
        expected -= wrapped**2 + 0.1 * thdot**2
        thdot = np.clip(thdot + 0.05 * 15 * np.sin(th), -8, 8)
        th += 0.05 * thdot
    assert score == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("env_id", baselines.STATIC)
def test_a_static_controller_scores_what_our_table_says(env_id):
    for word, package in (("bumps", "pybullet"), ("dmc", "dm_control")):
        if word in env_id:
            pytest.importorskip(package, reason=f"{package} does not install here")
    row = baselines.read_rows(ROOT / "benchmark" / "results" / "baselines.csv")[env_id, "static"]
    mean, std = map(float, row[2:4])
    returns, _ = baselines.measure(env_id, baselines.STATIC[env_id], 20, seed=0)
    assert np.mean(returns) == pytest.approx(mean, abs=3 * std / 20**0.5 + 1e-6)


def test_the_static_controller_of_the_car_always_finds_heaven():
    _, successes = baselines.measure("car-v0", baselines.car, 20, seed=0)
    assert successes == [1.0] * 20


def test_the_table_of_baselines_is_the_same_every_time(tmp_path):
    for name in ("a.csv", "b.csv"):
        words = ["--env-ids", "pendulum-p-v0", "--episodes", "2", "--out", str(tmp_path / name)]
        baselines.main(baselines.parse_args(words))
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    with open(tmp_path / "a.csv") as file:
        kinds = [row["controller"] for row in csv.DictReader(file)]
    assert kinds == ["random", "zero", "static"]


# ---- Speed ----


@pytest.mark.slow
def test_five_hundred_runs_are_plotted_in_time(tmp_path):
    envs = [f"task{k}-v0" for k in range(20)]
    rng = np.random.default_rng(0)
    for env in envs:
        for algorithm in ("rsac", "rtd3", "rdpg", "sac", "rsac_sharing"):
            for seed in range(5):
                values = np.cumsum(rng.normal(size=101))
                write_run(tmp_path / "runs", f"{env}__{algorithm}__{seed}", values, every=500)
    before = time.process_time(), time.perf_counter()
    plot.main(plot.parse_args([str(tmp_path / "runs"), "--out", str(tmp_path / "curves")]))
    # Of this process alone: what else the machine does is not the plot's time.
    assert time.process_time() - before[0] < 30
    assert (tmp_path / "curves-steps.svg").exists()


def test_a_path_that_is_not_there_is_a_user_error():
    with pytest.raises(UserError, match="nowhere"):
        read("nowhere")


# ---- The figures of the docs ----

PAGES = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
COMMAND = re.compile(
    r"^python -m benchmark\.plot (benchmark/results.*--out docs/_static/.*)$", re.M
)
FIGURES = [(name, words) for name, page in PAGES.items() for words in COMMAND.findall(page)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "command"), FIGURES)
def test_a_figure_and_its_table_are_those_of_the_data(name, command, tmp_path):
    args = plot.parse_args(command.split())
    out, args.out = ROOT / args.out, str(tmp_path / Path(args.out).name)
    args.paths = [ROOT / path for path in args.paths]
    if args.baselines != "none":
        args.baselines = ROOT / args.baselines
    plot.main(args)
    for line in Path(f"{args.out}.md").read_text().splitlines():
        assert line in PAGES[name], f"docs/{name} does not have the table as it is drawn now"
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) >= 2
    for path in drawn:
        mine, committed = path.read_text(), (out.parent / path.name).read_text()
        made_by = [re.search(r"Matplotlib v([\d.]+)", text)[1] for text in (mine, committed)]
        if made_by[0] != made_by[1]:
            pytest.skip(f"the figure was drawn by Matplotlib {made_by[1]}, here is {made_by[0]}")
        assert mine == committed, f"{path.name} is older than its data; see the command above it"
        assert (out.parent / path.with_suffix(".png").name).exists()


def test_a_bar_far_from_the_curves_is_named_and_does_not_squeeze_them(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac__0", [-10, -6, -5])
    panels = plot.make_panels(read(tmp_path)[0])
    bars = {"pendulum-p-v0": [("near", -8.0), ("below", -43.0), ("above", 50.0)]}
    styles, lines = plot.make_styles({"rsac"}, None), plot.make_lines(panels, 10)
    figure = plot.draw_panels(panels, lines, styles, bars, "steps")
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    assert -11 < low < -10
    assert -5 < high < -4
    heights = [line.get_ydata()[0] for line in axes.lines if len(line.get_ydata()) == 2]
    assert heights == [-8.0]
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    assert list(places) == ["near", "below: -43", "above: 50"]
    assert low <= places["below: -43"] < places["near"] < places["above: 50"] <= high


def test_curves_can_begin_after_the_random_steps(tmp_path):
    write_run(tmp_path, "pendulum-p-v0__rsac__0", [-90, -6, -5])
    panels = plot.make_panels(read(tmp_path)[0])
    steps = panels["pendulum-p-v0"]["rsac"][0].step
    line = plot.make_lines(panels, 10, from_step=steps[1])["pendulum-p-v0", "rsac"]
    assert [list(part) for part in (line[0], line[2])] == [list(steps[1:]), [-6, -5]]
    with pytest.raises(UserError, match="rsac ends before --from-step"):
        plot.make_lines(panels, 10, from_step=steps[2] + 1)


def test_a_noisy_task_has_more_episodes_as_in_our_own_table(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "measure", lambda *args: ([float(args[2])] * 2, []))
    argv = ["--env-ids", "pendulum-v0", "car-p-v0", "--out", str(tmp_path / "bars.csv")]
    baselines.main(baselines.parse_args(argv))
    bars = plot.read_baselines(tmp_path / "bars.csv")
    assert (dict(bars["pendulum-v0"])["zero"], dict(bars["car-p-v0"])["zero"]) == (100, 300)
    with open(ROOT / "benchmark" / "results" / "baselines.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["env_id"] for row in rows if row["episodes"] == "300"} == set(baselines.NOISY)


def test_baselines_of_one_environment_leave_the_others_in_the_table(tmp_path, monkeypatch):
    path = tmp_path / "baselines.csv"
    before = "env_id,controller,mean,std,success_rate,episodes\ne-v0,zero,1,0,,100\n"
    path.write_text(before + "pendulum-v0,zero,5,0,,100\n\n")
    argv = ["--env-ids", "pendulum-v0", "--episodes", "2", "--out", str(path)]
    baselines.main(baselines.parse_args(argv))
    assert path.read_text().startswith(before)
    bars = plot.read_baselines(path)
    assert bars["e-v0"] == [("zero", 1.0)]
    assert [name for name, _ in bars["pendulum-v0"]] == ["zero", "random"]
    assert dict(bars["pendulum-v0"])["zero"] < -500
    measure, times = baselines.measure, []

    def meanwhile(*args):  # another process measures its row again and again
        times.append(1)
        path.write_text(before.replace("zero,1,", f"zero,{len(times)},"))
        return measure(*args)

    monkeypatch.setattr(baselines, "measure", meanwhile)
    baselines.main(baselines.parse_args(["--env-ids", "pendulum-va-v0", *argv[1:]]))
    bars = plot.read_baselines(path)
    assert bars["e-v0"] == [("zero", len(times))], "the newest, not the one first read"
    assert [len(bars[env_id]) for env_id in ("pendulum-v0", "pendulum-va-v0")] == [2, 3]
    path.write_bytes(b"\xff\xfe,\n1")
    with pytest.raises(UserError, match="not a table"):
        baselines.main(baselines.parse_args(argv))
