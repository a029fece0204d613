"""benchmark.locomotion: our runs beside the published table."""

import csv

import pytest
from test_scoreboard import row

from benchmark import locomotion, scoreboard
from benchmark.locomotion import BULLET
from common.files import write_csv

PUBLISHED = [{"env_id": task, "RESeL": f"{k}", "SAC": "310"} for k, task in enumerate(BULLET)]


def lines(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_each_cell_stands_under_its_script_beside_the_published_mean():
    rows = [row("hopper-p-v0", "rsac", 70, 1234.4), row("hopper-p-v0", "rsac", 71, 999.9)]
    rows += [row("hopper-p-v0", "sac", 70, 300), row("HopperBulletEnv-v0", "sac", 70, 2000)]
    head, _, *its = lines(locomotion.beside_published(rows, PUBLISHED))
    column = head.index("hopper-p")
    assert {cells[0]: cells[column] for cells in its} == {
        "rsac.py": "1234, 1000",
        "sac.py, no memory": "300",
        "sac.py, full state": "2000",
        "RESeL, published": "0",
        "SAC, published": "310",
    }


def test_the_tasks_stand_in_our_order_with_a_line_for_each_script_that_was_run_on_any():
    rows = [row("walker2d-p-v0", "rsac", 70, 900), row("hopper-v-v0", "rtd3", 70, 300)]
    head, _, *its = lines(locomotion.beside_published(rows, PUBLISHED[::-1]))
    assert head == ["agent", *(task.removesuffix("-v0") for task in BULLET)]
    assert its[:4] == [
        ["rsac.py", *"----", "900", *"---"],
        ["rtd3.py", "-", "300", *"------"],
        ["sac.py, full state", *"--------"],
        ["RESeL, published", *"01234567"],
    ]


def test_the_short_runs_are_shown_where_two_of_them_were_run():
    rows = [row("hopper-p-v0", "rsac-short-64", 70, 800)]
    rows.append(row("ant-p-v0", "rsac-short-64", 70, 500))
    assert locomotion.recipe(rows) == "Not run yet.\n"
    rows.append(row("hopper-p-v0", "rsac-resel-short-64", 70, 600))
    its = ["`hopper-p-v0`", "-", "800", "-", "-", "-", "600"]
    assert lines(locomotion.recipe(rows))[2:] == [its]


def test_a_group_of_seeds_has_its_lowest_late_evaluation_and_its_median_minutes(tmp_path):
    rows = [
        row("ant-p-v0", "rsac", k, final, worst) for k, final, worst in ((70, 9, 8), (71, 7, 2))
    ]
    rows[1]["minutes"] = "5.0"
    (tmp_path / "curves").mkdir()
    for seed in (70, 71):
        head = '# a comment\n# {"machine": "Linux-6, 2 cores, AVX512"}\n'
        (tmp_path / "curves" / f"ant-p-v0__rsac__{seed}.csv").write_text(head)
    _, _, cells = lines(locomotion.runs(rows, ["hopper-p-v0", "ant-p-v0"], tmp_path))
    its = ["`ant-p-v0`", "`rsac`", "9, 7", "2", "1,000", "70, 71", "4", "2 cores, AVX512"]
    assert cells == its
    assert locomotion.runs(rows, ["hopper-p-v0"], tmp_path) == "Not run yet.\n"


def test_sac_stands_beside_what_rsac_had_reached_in_its_minutes(tmp_path):
    rows = [row("hopper-p-v0", "rsac", 70, 900), row("hopper-p-v0", "rsac", 71, 700)]
    rows += [row("hopper-p-v0", "sac", 70, 300), row("HopperBulletEnv-v0", "sac", 70, 2000)]
    rows[2]["minutes"], rows[3]["minutes"] = "1.0", "1.9"
    (tmp_path / "curves").mkdir()
    for seed, then in ((70, 500), (71, 300)):
        text = f"global_step,wall_seconds,eval_return_mean\n0,1,9\n500,60,{then}\n1000,114.1,900\n"
        (tmp_path / "curves" / f"hopper-p-v0__rsac__{seed}.csv").write_text(text)
    assert lines(locomotion.same_minutes(rows, tmp_path))[2:] == [
        ["`hopper-p-v0`", "`hopper-p-v0`", "1", "300", "500, 300", "900, 700"],
        ["`hopper-p-v0`", "`HopperBulletEnv-v0`", "1.9", "2000", "500, 300", "900, 700"],
    ]
    assert locomotion.same_minutes(rows[2:], tmp_path) == "Not run yet.\n"


def test_the_published_table_has_every_task_once():
    with open(locomotion.OUT / "published.csv", newline="") as file:
        published = list(csv.DictReader(file))
    assert sorted(line["env_id"] for line in published) == sorted(locomotion.BULLET)
    assert all(float(value) > 0 for line in published for value in list(line.values())[1:])


def test_runs_with_pink_noise_stand_above_those_without_of_the_same_task(tmp_path):
    rows = [row("ant-p-v0", "rsac", 70, 9), row("ant-p-v0", "rsac-pink-half", 71, 9)]
    rows.append(row("hopper-p-v0", "rsac", 70, 9))
    (tmp_path / "curves").mkdir()
    curve = "global_step,wall_seconds,eval_return_mean\n0,0,1\n250000,1,{}\n500000,2,7\n"
    for name, value in (("rsac__70", 3), ("rsac-pink-half__71", 5)):
        (tmp_path / "curves" / f"ant-p-v0__{name}.csv").write_text(curve.format(value))
    assert lines(locomotion.pink(rows, tmp_path))[2:] == [
        ["`ant-p-v0`", "pink noise", "71", "5", "7", *"----"],
        ["`ant-p-v0`", "as in `rsac.py`", "70", "3", "7", *"----"],
    ]
    assert locomotion.pink(rows[:1], tmp_path) == "Not run yet.\n"


@pytest.mark.parametrize("known", [[], [row("ant-p-v0", "rsac", 70, 500)]])
def test_the_files_are_made_from_the_rows_that_are_there(known, tmp_path, capsys):
    words = ["--out", str(tmp_path)]
    args = scoreboard.parse_args(words, "Text.", locomotion.OUT)
    if not known:
        with pytest.raises(scoreboard.UserError, match="no runs yet"):
            locomotion.main(args)
        return
    write_csv(tmp_path / "scoreboard.csv", known)
    (tmp_path / "curves").mkdir()
    curve = "global_step,wall_seconds,eval_return_mean\n0,1.0,20\n1000,9.0,500\n"
    (tmp_path / "curves" / "ant-p-v0__rsac__70.csv").write_text(curve)
    locomotion.main(args)
    assert "| rsac.py | - | - | - | - | - | - | 500 | - |" in capsys.readouterr().out
    assert (tmp_path / "locomotion.png").stat().st_size > 10_000
    assert (tmp_path / "provenance.csv").read_text().startswith("run,commit,")
