"""The scoreboard: floors, bounds, what counts as solved; its files are those of the data."""

import csv
import json
import subprocess
import sys

import pytest
from script_runs import ROOT, tiny, train

from benchmark import scoreboard
from common.errors import UserError

TASK, FULL = "pendulum-p-v0", "pendulum-v0"
OTHER, OTHER_FULL = "reacher-pomdp-v0", "reacher-mdp-v0"


def row(env_id, algorithm, seed, final, worst=None, rate=""):
    worst = final if worst is None else worst
    values = (env_id, algorithm, str(seed), str(final), rate, str(worst), "1000", "2.0")
    return dict(zip(scoreboard.COLUMNS, values, strict=True))


def test_the_floor_is_the_best_without_memory_and_the_bound_the_mean_on_the_full_state():
    rows = [row(TASK, "sac", 0, -900), row(TASK, "sac", 1, -1000), row(TASK, "rsac", 0, -100)]
    rows += [row(FULL, "sac", 0, -150), row(FULL, "sac", 1, -130)]
    controllers = {TASK: [("random", -1200.0), ("static", -1100.0)]}
    assert scoreboard.floor_of(rows, controllers, TASK) == (-950, "sac")
    assert scoreboard.floor_of(rows, {TASK: [("static", -800.0)]}, TASK) == (-800, "static")
    assert scoreboard.floor_of([], {}, TASK) is None
    assert scoreboard.bound_of(rows, TASK) == -140
    (line,) = scoreboard.summary(rows, controllers)
    assert line["share"] == pytest.approx(850 / 810)


@pytest.mark.parametrize(
    ("final", "worst", "solved"),
    [(-5.2, -5.9, 1), (-5.26, -5.9, 0), (-5.2, -6.1, 0), (-4.9, -4.9, 1)],
)
def test_a_seed_has_solved_a_task_at_the_end_and_without_dips(final, worst, solved):
    """From -10 to -5: 95 % of the way is -5.25, 80 % is -6."""
    rows = [row(OTHER, "sac", 0, -10), row(OTHER_FULL, "sac", 0, -5)]
    (line,) = scoreboard.summary([*rows, row(OTHER, "rsac", 0, final, worst)], {})
    assert line["solved"] == solved


def test_the_pendulum_is_solved_at_an_agreed_return():
    rows = [row(TASK, "sac", 0, -1000), row(FULL, "sac", 0, -150)]
    rows += [row(TASK, "rsac", 0, -199), row(TASK, "rsac", 1, -201)]
    (line,) = scoreboard.summary(rows, {})
    assert line["solved"] == 1


def test_a_task_without_floor_or_bound_has_dashes():
    lines = scoreboard.summary([row(TASK, "rsac", 3, -170.123, rate="0.5")], {})
    text = scoreboard.table(lines).splitlines()[-1]
    cells = text.strip("| ").split(" | ")
    assert cells[:3] == [f"`{TASK}`", "-", "-"]
    assert cells[3:6] == ["-170; success 0.50", "-170", "-"]


def test_recurrent_ppo_is_taken_in_with_the_episodes_that_it_played_at_the_end(tmp_path, capsys):
    folder = tmp_path / "runs" / f"{FULL}__recurrent_ppo__3"
    argv = ["--total-steps", "200", "--eval-every", "100", "--eval-episodes", "2", "--seed", "3"]
    argv += ["--env-id", FULL, "--run-dir", str(folder), "--test-episodes", "4"]
    subprocess.run([sys.executable, ROOT / "benchmark" / "recurrent_ppo.py", *argv], check=True)
    words = (folder / "test.txt").read_text().split()
    assert words[:3] == ["episodes", "4", "return_mean"]
    out = tmp_path / "results"
    scoreboard.main(scoreboard.parse_args([str(tmp_path / "runs"), "--out", str(out)]))
    (tested,) = csv.DictReader((out / "scoreboard.csv").read_text().splitlines())
    assert (tested["algorithm"], tested["final"]) == ("recurrent_ppo", words[3])
    assert "benchmark/recurrent_ppo.py --total-steps 200" in (out / "provenance.csv").read_text()
    (folder / "test.txt").unlink()  # killed in these episodes
    with pytest.raises(UserError, match="no runs yet"):
        scoreboard.main(scoreboard.parse_args([str(tmp_path / "runs"), "--out", str(tmp_path)]))
    assert "not finished" in capsys.readouterr().err


def test_the_other_scripts_have_a_table_of_their_own():
    lines = [row(OTHER, "sac", 0, -10), row(OTHER_FULL, "sac", 0, -5), row(OTHER, "rsac", 0, -5)]
    lines += [row(OTHER, "rdpg", 0, -5.1), row(OTHER, "rdpg", 1, -7)]
    text = scoreboard.others(scoreboard.summary(lines, {}), scoreboard.FAMILY).splitlines()
    assert text[0] == "| task | `rsac_sharing` | `rtd3` | `rdpg` |"
    assert text[-1] == f"| `{OTHER}` | - | - | -5.1, -7 (1 of 2) |"
    assert len(text) == 3


def test_a_shorter_run_is_no_result_and_a_bound_below_the_floor_says_nothing():
    rows = [row(OTHER, "sac", 0, -10), row(OTHER_FULL, "sac", 0, -5), row(OTHER, "rsac", 0, -5)]
    trial = row(OTHER, "rsac", 1, -12) | {"steps": "300"}
    (line,) = scoreboard.summary([*rows, trial], {})
    assert (line["finals"], line["solved"], line["steps"]) == ([-5], 1, 1000)
    for full in (-10, -11):
        (line,) = scoreboard.summary([*rows, trial, row(OTHER_FULL, "sac", 1, 2 * full + 5)], {})
        assert (line["solved"], line["share"]) == (None, None)
        assert "| - |" in scoreboard.table([line])


def test_stacked_frames_count_as_a_result_of_their_task():
    rows = [row(TASK, "sac", 0, -1000), row(FULL, "sac", 0, -150), row(TASK, "rsac", 0, -150)]
    rows += [row("pendulum-p-concat5-v0", "sac", 0, -180), row(TASK, "recurrent_ppo", 0, -600)]
    rows += [row("pendulum-p-concat5-v0", "sac-defaults", 0, -210)]
    text = scoreboard.others(scoreboard.summary(rows, {}), scoreboard.USUAL).splitlines()
    assert text[-1] == f"| `{TASK}` | - | -180 (1 of 1) | -210 (0 of 1) | -600 (0 of 1) |"


def test_the_floor_is_the_best_without_memory():
    rows = [row(TASK, "sac", 0, -1000)]
    rows += [row(TASK, "rsac-no-memory", seed, final) for seed, final in ((0, -900), (1, -700))]
    static = {TASK: {"random": -1200, "static": -950}}
    assert scoreboard.floor_of(rows, static, TASK) == (-800, "rsac-no-memory")
    assert scoreboard.floor_of(rows[:1], static, TASK) == (-950, "static")
    rows += [row(TASK, "sac-defaults", 0, -750)]
    assert scoreboard.floor_of(rows, static, TASK) == (-750, "sac-defaults")


def test_longer_runs_that_return_less_lower_neither_floor_nor_bound():
    rows = [row(TASK, "sac", 0, -700), row(FULL, "sac", 0, -100), row(FULL, "sac", 1, -200)]
    for env_id, final in ((TASK, -900), (FULL, -180)):
        rows.append(row(env_id, "sac", 2, final) | {"steps": "5000"})
    assert scoreboard.floor_of(rows, {}, TASK) == (-700, "sac")
    assert scoreboard.bound_of(rows, TASK) == -150
    rows.append(row(FULL, "sac", 3, -140) | {"steps": "9000"})
    assert scoreboard.bound_of(rows, TASK) == -140


def test_a_run_is_tested_on_fresh_episodes_and_their_number_is_that_of_the_tables(
    tmp_path, monkeypatch
):
    commands = []

    def note(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "killed")

    folder = train("sac", tiny("sac", env="pendulum-v0"), tmp_path, "pendulum-v0__sac__0__now")
    monkeypatch.setattr(scoreboard.subprocess, "run", note)
    scoreboard.take_in([folder.parent], tmp_path, scoreboard.TEST_EPISODES)
    # Its evaluation failed: named and left out, others go on.
    assert not (tmp_path / "scoreboard.csv").exists()
    ((*_, evaluate, run, seed, value, episodes, number),) = commands
    assert (evaluate, run) == ("--evaluate", str(folder))
    assert (seed, value, episodes, number) == ("--seed", "1000", "--eval-episodes", "100")


HEAD = ",".join(scoreboard.COLUMNS) + "\n"
NO_NUMBER = "x,sac,0,high,,1,100,2\n"


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", HEAD + "x,sac,0\n", HEAD + NO_NUMBER])
def test_another_table_is_not_taken_for_that_of_the_runs(text, tmp_path):
    (tmp_path / "scoreboard.csv").write_text(text)
    with pytest.raises(UserError, match="is not a table of benchmark"):
        scoreboard.read_rows(tmp_path / "scoreboard.csv")


def test_a_finished_run_is_tested_once_and_an_unfinished_one_not_at_all(tmp_path, capsys):
    runs, out = tmp_path / "runs", tmp_path / "results"
    name = "pendulum-v0__sac-of-a-tag__0"
    argv = tiny("sac", env="pendulum-v0")
    train("sac", argv, tmp_path, f"{name}__now")
    unfinished = train("sac", argv, tmp_path, "pendulum-v0__sac__1__now")
    args = json.loads((unfinished / "args.json").read_text())
    (unfinished / "args.json").write_text(json.dumps(args | {"total_steps": 10**6}))
    words = [str(runs), "--out", str(out), "--episodes", "3"]
    scoreboard.main(scoreboard.parse_args(words))
    assert f"not finished: {unfinished}" in capsys.readouterr().err
    (tested,) = csv.DictReader((out / "scoreboard.csv").read_text().splitlines())
    assert (tested["env_id"], tested["algorithm"], tested["seed"]) == tuple(name.split("__"))
    assert -2000 < float(tested["final"]) < 0
    before = {path.name: path.read_bytes() for path in out.glob("*.*")}
    assert before.keys() == {"scoreboard.csv", "scoreboard.png", "provenance.csv"}
    assert f"\n{name}," in (out / "provenance.csv").read_text()
    scoreboard.main(scoreboard.parse_args(words))
    assert before == {path.name: path.read_bytes() for path in out.glob("*.*")}


def test_two_folders_of_one_seed_are_one_row(tmp_path):
    for time in ("now", "later"):
        write_run(tmp_path / "runs" / f"{TASK}__rsac__3__{time}", -150)
    (tmp_path / "runs" / f"{TASK}__rsac__best").mkdir()
    write_run(tmp_path / "runs" / f"{TASK}__rsac__best", -150)  # no seed
    out = tmp_path / "out"
    scoreboard.main(scoreboard.parse_args([str(tmp_path / "runs"), "--out", str(out)]))
    assert [row["seed"] for row in scoreboard.read_rows(out / "scoreboard.csv")] == ["3"]


def test_another_run_of_a_seed_is_not_taken_in_and_is_named(tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    for folder, final in (("runs", -150), ("again", -150), ("mine", -180)):
        write_run(tmp_path / folder / f"{TASK}__rsac__3", final)
    curve = tmp_path / "mine" / f"{TASK}__rsac__3" / "progress.csv"
    curve.write_text(curve.read_text().replace("-200", "-250"))
    for folder in ("runs", "again"):  # the same results
        scoreboard.main(scoreboard.parse_args([str(tmp_path / folder), *out]))
    assert "kept another run" not in capsys.readouterr().err
    scoreboard.main(scoreboard.parse_args([str(tmp_path / "mine"), *out]))
    assert f"kept another run, not {curve.parent}" in capsys.readouterr().err
    (kept,) = scoreboard.read_rows(tmp_path / "out" / "scoreboard.csv")
    assert kept["final"] == "-150"


def test_rows_that_another_process_has_written_since_stay(tmp_path, monkeypatch):
    out, evaluate = tmp_path / "out", scoreboard.evaluate_run
    for folder, seed in (("mine", 3), ("theirs", 4)):
        write_run(tmp_path / folder / f"{TASK}__rsac__{seed}", -150)

    def meanwhile(folder, episodes):
        if folder.parent.name == "mine":
            scoreboard.take_in([tmp_path / "theirs"], out, 2)
        return evaluate(folder, episodes)

    monkeypatch.setattr(scoreboard, "evaluate_run", meanwhile)
    scoreboard.take_in([tmp_path / "mine"], out, 2)
    assert [row["seed"] for row in scoreboard.read_rows(out / "scoreboard.csv")] == ["3", "4"]


def test_a_run_that_became_longer_replaces_its_row(tmp_path):
    folder = tmp_path / "runs" / f"{TASK}__rsac__3"
    write_run(folder, -150)
    words = scoreboard.parse_args([str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    scoreboard.main(words)
    (before,) = scoreboard.read_rows(tmp_path / "out" / "scoreboard.csv")
    last = (folder / "progress.csv").read_text().splitlines()[-1].split(",", 1)
    with open(folder / "progress.csv", "a") as file:
        file.write(f"{int(last[0]) + 100},{last[1]}\n")
    scoreboard.main(words)
    (after,) = scoreboard.read_rows(tmp_path / "out" / "scoreboard.csv")
    assert int(after["steps"]) == int(before["steps"]) + 100


@pytest.mark.parametrize("file", ["progress.csv", "args.json", "run.json"])
def test_a_damaged_run_is_left_out(file, tmp_path, capsys):
    for seed in (3, 4):
        write_run(tmp_path / "runs" / f"{TASK}__rsac__{seed}", -150)
    damaged = tmp_path / "runs" / f"{TASK}__rsac__3" / file
    damaged.write_text("")
    words = [str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    scoreboard.main(scoreboard.parse_args(words))
    rows = scoreboard.read_rows(tmp_path / "out" / "scoreboard.csv")
    assert [row["seed"] for row in rows] == ["4"]
    assert f"skipped {damaged.parent}" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "", "global_step,wall_seconds,eval_return_mean\n0,1,x\n"])
def test_a_row_without_its_curve_is_one_line(text, tmp_path):
    write_run(tmp_path / "runs" / f"{TASK}__rsac__3", -150)
    words = ["--out", str(tmp_path / "out")]
    scoreboard.main(scoreboard.parse_args([str(tmp_path / "runs"), *words]))
    (curve,) = (tmp_path / "out" / "curves").glob("*.csv")
    curve.write_text(f"# a comment\n# {{}}\n{curve.read_text()}")  # of a run.json that says little
    scoreboard.main(scoreboard.parse_args(words))
    curve.unlink() if text is None else curve.write_text(text)
    with pytest.raises(UserError, match=r"cannot read .*rsac__3\.csv.*delete its row"):
        scoreboard.main(scoreboard.parse_args(words))


def test_what_cannot_be_shown_is_one_line(tmp_path):
    for words in ([], [str(tmp_path / "nowhere")]):
        with pytest.raises(UserError, match=r"no runs yet|no folder"):
            scoreboard.main(scoreboard.parse_args([*words, "--out", str(tmp_path / "out")]))


def test_the_tables_of_the_pages_are_those_of_the_data():
    rows = scoreboard.read_rows(scoreboard.RESULTS / "scoreboard.csv")
    controllers = scoreboard.read_baselines(scoreboard.RESULTS / "baselines.csv")
    lines = scoreboard.summary(rows, controllers)
    assert scoreboard.table(lines) in (ROOT / "docs" / "results.md").read_text()
    for names in (scoreboard.FAMILY, scoreboard.USUAL):
        assert scoreboard.others(lines, names) in (ROOT / "docs" / "results.md").read_text()
    assert scoreboard.headline(lines) in (ROOT / "README.md").read_text()


def test_each_row_has_its_curve_and_says_where_it_comes_from():
    rows = scoreboard.read_rows(scoreboard.RESULTS / "scoreboard.csv")
    names = {"__".join((row["env_id"], row["algorithm"], row["seed"])) for row in rows}
    assert len(names) == len(rows)
    assert names == {file.stem for file in (scoreboard.RESULTS / "curves").glob("*.csv")}
    with open(scoreboard.RESULTS / "provenance.csv", newline="") as file:
        origins = list(csv.DictReader(file))
    assert names == {origin["run"] for origin in origins}
    started = [origin["run"] for origin in origins if "--resume" not in origin["command"]]
    assert sorted(started) == sorted(names)  # each further process of a run has a line, too


def write_run(folder, final):
    """A finished and tested run of 1000 steps."""
    folder.mkdir(parents=True, exist_ok=True)
    values = [-950, -960, -970, -980, -990, -995, -998, -999, -300, -100, -200]  # steps 0 to 1000
    lines = [f"{100 * k},{60.0 * k},{value}\n" for k, value in enumerate(values)]
    head = "global_step,wall_seconds,eval_return_mean\n"
    (folder / "progress.csv").write_text(head + "".join(lines))
    told = f"episodes 2  return_mean {final}  return_std 9  return_min -170  return_max -130"
    (folder / "test.txt").write_text(f"{told}  length_mean 200  success_rate 0.5\n")


def test_a_row_of_the_scoreboard_is_that_of_its_run(tmp_path):
    folder = tmp_path / "pendulum-p-v0__rsac__3__now"
    write_run(folder, -150)
    row = scoreboard.evaluate_run(folder, 2)
    expected = ("pendulum-p-v0", "rsac", "3", "-150", "0.5", "-300", "1000", "10.0")
    assert row == dict(zip(scoreboard.COLUMNS, expected, strict=True))
