"""Wrong command lines: one clear line, exit code 2, no traceback, no folder left behind."""

import fcntl
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from script_runs import RECURRENT, ROOT, SCRIPTS, env_id, run, tiny, train

from common import cli
from envs.table import OURS

# Found while arguments are parsed: arguments -> what the line says.
AT_ONCE = {
    "--no-such-argument": "unrecognized arguments: --no-such-argument",
    "--env": "unrecognized arguments",  # no abbreviations: they would change their meaning
    "--total-steps 0": "--total-steps: must be a whole number at least 1, not '0'",
    "--total-steps -5": "--total-steps",
    "--total-steps 1.5": "--total-steps: must be a whole number",
    "--total-steps many": "--total-steps: must be a whole number",
    "--total-steps nan": "--total-steps",
    "--total-steps 1e999": "--total-steps",
    "--total-steps": "--total-steps: expected one argument",
    "--seed -1": "--seed: must be a whole number from 0 to",
    "--seed 99999999999": "--seed",
    "--batch-size 0": "--batch-size: must be a whole number at least 1",
    "--buffer-size 1": "--buffer-size",
    "--num-envs 0": "--num-envs",
    "--num-threads 0": "--num-threads",
    "--learning-starts 0": "--learning-starts",
    "--updates-per-step -1": "--updates-per-step: must be a number at least 0",
    "--updates-per-step inf": "--updates-per-step",
    "--updates-per-step 1e308": "--updates-per-step: must be a number at least 0",
    "--hidden-dims 0": "--hidden-dims",
    "--hidden-dims 64 -3": "--hidden-dims",
    "--gamma 1.01": "--gamma: must be a number from 0 to 1, not '1.01'",
    "--gamma nan": "--gamma",
    "--tau -0.1": "--tau",
    "--lr -1": "--lr",
    "--lr fast": "--lr: must be a number",
    "--eval-every 0": "--eval-every",
    "--eval-episodes 0": "--eval-episodes",
    "--evaluate x --resume y": "--evaluate and --resume cannot go together",
    "--evaluate=": "an empty word after --evaluate;",
    "--resume=": "an empty word after --resume;",
    "--run-dir=": "an empty word after --run-dir;",
    "--buffer-size 1e18": "--buffer-size",
    "surplus": "unrecognized arguments: surplus",
}
AT_ONCE_OF = {
    "sac": {
        "--alpha -1": "--alpha",
        "--target-entropy nan": "--target-entropy: must be a number, not 'nan'",
    },
    "ddpg": {"--exploration-noise -1": "--exploration-noise"},
    "td3": {"--policy-delay 0": "--policy-delay", "--noise-clip -1": "--noise-clip"},
    "recurrent": {
        "--sequence-length -1": "--sequence-length",
        "--context-length -1": "--context-length",
        "--memory-input reward": "--memory-input: invalid choice",
        "--rnn-dim 0": "--rnn-dim",
        "--memory-input smell": "--memory-input: invalid choice",
    },
}
AT_ONCE_OF |= {"rsac": AT_ONCE_OF["sac"], "rsac_sharing": AT_ONCE_OF["sac"]}
AT_ONCE_OF |= {"conv_sac": AT_ONCE_OF["sac"], "rdpg": AT_ONCE_OF["ddpg"], "rtd3": AT_ONCE_OF["td3"]}

# Found when the environment, the machine and the files are looked at.
LATER = {
    "--env-id no-such-env-v0": "unknown environment 'no-such-env-v0'",
    "--env-id pendulm-p-v0": "did you mean pendulum-p-v0",
    "--env-id Pendulum-v7": "did you mean Pendulum-v1",
    "--env-id calendar:Pendulum-v1x": "calendar registers nothing new; is gym.register(...) in it?",
    "--env-id no_such_module:Toy-v0": "no_such_module:Toy-v0 cannot be imported",
    "--env-id envs.my:X-v0": "'envs.my'); envs here is a module of this repository; give yours",
    "--env-id common.my:X-v0": "common here is a module of this repository; give yours another",
    "--env-id benchmark.my:X-v0": "benchmark here is a module of this repository; give yours",
    "--env-id rsac:X-v0": "rsac here is a module of this repository; give yours another name",
    "--env-id :": "",
    "--env-id CartPole-v1": "a flat, continuous, bounded Box is needed",
    "--env-id toy_envs:ToyDiscrete-v0": "a flat, continuous, bounded Box is needed",
    "--env-id toy_envs:ToyWhole-v0": "a flat, continuous, bounded Box is needed",
    "--env-id toy_envs:ToyUnbounded-v0": "a flat, continuous, bounded Box is needed",
    "--env-id toy_envs:ToyMixed-v0": "a picture must be the whole observation",
    "--env-id toy_envs:ToySequence-v0": "which have no fixed size",
    "--env-id toy_envs:ToyRaises-v0": "cannot be made: RuntimeError: no licence for this simulator",
    "--device quantum": "--device quantum is not available",
    "--device meta": "--device meta is not available",
    "--device cuda:77": "--device cuda:77 is not available",
    "--buffer-size 1e14": "smaller",
    "--hidden-dims 1e14 1e14": "smaller",
    "--num-threads 1e10": "--num-threads 10000000000 is more than 1024",
    "--buffer-size 2 --num-envs 3": "--buffer-size 2 is too small",
    "--run-dir /proc/nowhere": "/proc",
    "--run-dir {tmp}/file/run": "Not a directory",
    "--run-dir {tmp}/empty": "empty exists and is no run; choose another --run-dir",
    "--run-dir {tmp}/file": "file exists and is no run; choose another --run-dir",
    "--run-dir {tmp}/begun": "begun has no checkpoint to resume; choose another --run-dir",
    "--resume {tmp}/nothing/at/all": "nothing/at/all is not there",
    "--resume {tmp}/empty": "holds no run",
    "--resume {tmp}/file": "holds no run",
    "--evaluate {tmp}/nothing": "nothing: No such file",
    "--evaluate {tmp}/empty": "checkpoint.pt is not there",
    "--evaluate {tmp}/file": "no checkpoint of this project, or it is damaged",
}
FLAT_ONLY = {"--env-id toy_envs:ToyPictures-v0": "pictures are for conv_sac.py"}
LATER_OF = {name: FLAT_ONLY for name in SCRIPTS if name != "conv_sac"} | {
    "conv_sac": {
        "--env-id toy_envs:Toy-v0": "(3,)",
        "--env-id toy_envs:ToyThumbnails-v0": "has pictures of 29 x 29 pixels; the encoder needs",
    },
}


def cases_of(script, table, own):
    kinds = [script, *(["recurrent"] if script in RECURRENT else [])]
    return table | {text: says for kind in kinds for text, says in own.get(kind, {}).items()}


def assert_one_line(text, script, says):
    *shown, line = text.rstrip("\n").split("\n")
    # Before the error stand at most two lines about what was asked for.
    assert all(re.match(r"(cpu|cuda).* threads, seed|replay buffer: ", x) for x in shown), text
    assert line.startswith(f"{script}.py: error: "), line
    assert says in line, line


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_cannot_be_parsed_gets_one_line_and_code_2(script, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{script}.py"])
    cases = cases_of(script, AT_ONCE, AT_ONCE_OF)
    assert len(cases) >= 30
    for text, says in cases.items():
        with pytest.raises(SystemExit) as stop:
            importlib.import_module(script).parse_args(text.split())
        captured = capsys.readouterr()
        assert stop.value.code == 2, text
        assert_one_line(captured.err, script, says)
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_does_not_fit_gets_one_line_and_code_2_and_leaves_nothing(script, tmp_path):
    (tmp_path / "file").write_text("not a folder, not a checkpoint")
    for name in ("empty", "begun"):
        (tmp_path / name).mkdir()
    (tmp_path / "begun" / "args.json").write_text("{}")
    cases = cases_of(script, LATER, LATER_OF)
    for text, says in cases.items():
        argv = [word.format(tmp=tmp_path) for word in text.split()]
        if argv[0] not in ("--resume", "--evaluate"):
            argv = [*tiny(script), *argv]
        ended = run(script, argv, tmp_path)
        assert ended.code == 2, (text, ended)
        assert_one_line(ended.err, script, says)
        assert ended.out == ""
        left = {path.name for path in tmp_path.rglob("*")} - {"log.out", "log.err"}
        assert left <= {"file", "empty", "begun", "args.json", "runs"}, text


def test_a_run_in_progress_is_not_said_to_be_one_to_delete(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with open(folder / "args.json", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ended = run("sac", [*tiny("sac"), "--run-dir", str(folder)], tmp_path)
    assert ended.code == 2
    assert_one_line(ended.err, "sac", f"another process is writing to {folder}")


def test_an_exported_policy_cannot_be_resumed(tmp_path):
    policy = tmp_path / "pendulum-p-v0__rsac.pt"
    shutil.copy(ROOT / "policies" / policy.name, policy)
    (tmp_path / "args.json").write_text("{}")
    ended = run("rsac", ["--resume", str(policy)], tmp_path)
    assert ended.code == 2
    assert_one_line(ended.err, "rsac", "is an exported policy; no run can go on from it")


def call(*argv, **how):
    """A real process, as typed in a shell."""
    how = {"cwd": ROOT, "timeout": 120, "capture_output": True, "text": True} | how
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    return subprocess.run([sys.executable, *map(str, argv)], env=env, **how)


REAL = [
    ("sac", "--batch-size 0"),
    ("rsac", "--gamma 2"),
    ("td3", "--lr nan"),
    ("rsac", "--env-id pendulm-p-v0"),
    ("sac", "--env-id CartPole-v1"),
    ("rsac", "--device cuda:77"),
    ("ddpg", "--evaluate README.md"),
]


@pytest.mark.parametrize(("script", "text"), [case for case in REAL if case[0] in SCRIPTS])
def test_a_real_process_answers_alike(script, text, tmp_path):
    ended = call(f"{script}.py", *text.split(), "--run-dir", tmp_path / "runs")
    assert ended.returncode == 2, ended
    assert_one_line(ended.stderr, script, "")
    assert ended.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_a_reader_that_has_seen_enough_is_no_error():
    words = f"{sys.executable} -m envs pendulum-v0 | true"
    ended = subprocess.run(words, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.stderr == ""


def test_a_module_of_ones_own_is_looked_for_here_not_on_a_package_index(tmp_path):
    ended = call("rsac.py", "--env-id", "my_tasks:Mine-v0", "--run-dir", tmp_path / "run")
    assert ended.returncode == 2
    assert "is my_tasks installed, or a module beside the scripts or on PYTHONPATH?" in ended.stderr
    assert "pip install" not in ended.stderr


def test_a_module_of_ones_own_that_imports_another_of_a_name_of_ours_is_told_so(tmp_path):
    (tmp_path / "my_tasks.py").write_text("from common.tools import draw\n")
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "tools.py").write_text("draw = print\n")
    command = [sys.executable, ROOT / "rsac.py", "--env-id", "my_tasks:Mine-v0"]
    paths = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "common here is a module of this repository; give yours another name" in ended.stderr


def test_every_script_and_package_is_known_as_one_of_this_repository():
    packages = [path.parent.name for path in ROOT.glob("*/__init__.py")]
    assert {*SCRIPTS, *packages, "docs", "tests"} == OURS


# ---- What conflicts with a saved run ----


@pytest.fixture(scope="module")
def sac_run(tmp_path_factory):
    return train("sac", tiny("sac"), tmp_path_factory.mktemp("sac"))


CONFLICTS = {
    "--lr 0.5": "--lr 0.5 is not the run's 0.0003; leave it out",
    "--env-id Pendulum-v1": "--env-id Pendulum-v1 is not the run's",
    "--hidden-dims 9 9": "--hidden-dims [9, 9] is not the run's [6]",
    "--alpha 0.2": "--alpha 0.2 is not the run's None",
}


@pytest.mark.parametrize("mode", ["--resume", "--evaluate"])
@pytest.mark.parametrize("text", CONFLICTS)
def test_an_argument_that_conflicts_is_refused_by_name(mode, text, sac_run, tmp_path):
    before = (sac_run / "progress.csv").read_bytes()
    ended = run("sac", [mode, sac_run, *text.split()], tmp_path)
    assert ended.code == 2
    assert_one_line(ended.err, "sac", CONFLICTS[text])
    assert (sac_run / "progress.csv").read_bytes() == before


@pytest.mark.parametrize("mode", ["--resume", "--evaluate"])
def test_a_device_that_is_not_there_is_refused_with_a_saved_run_too(mode, tmp_path):
    folder = train("rsac", tiny("rsac", total=20), tmp_path)
    ended = run("rsac", [mode, folder, "--device", "cuda:77"], tmp_path)
    assert ended.code == 2
    assert_one_line(ended.err, "rsac", "--device cuda:77 is not available")


def test_total_steps_may_not_be_lowered(sac_run, tmp_path):
    ended = run("sac", ["--resume", sac_run, "--total-steps", 30], tmp_path)
    assert ended.code == 2
    assert_one_line(ended.err, "sac", "--total-steps 30 is less than the run's 60")


def test_an_argument_that_repeats_what_was_saved_is_fine(sac_run, tmp_path):
    assert run("sac", ["--resume", sac_run, "--env-id", env_id("sac")], tmp_path).code == 0


@pytest.mark.parametrize("mode", ["--resume", "--evaluate"])
def test_the_run_of_another_script_is_refused_and_its_script_named(mode, sac_run, tmp_path):
    ended = run("td3", [mode, sac_run], tmp_path)
    assert ended.code == 2
    assert_one_line(ended.err, "td3", "was written by sac.py; use: python sac.py")


# ---- Help ----


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_there_without_torch(script):
    code = f"import sys; sys.argv = ['{script}.py', '--help']\ntry:\n    import runpy; "
    code += f"runpy.run_path('{script}.py', run_name='__main__')\nexcept SystemExit:\n    pass\n"
    code += "print([name for name in ('torch', 'numpy', 'gymnasium') if name in sys.modules])"
    ended = call("-c", code)
    assert ended.stdout.splitlines()[-1] == "[]", ended
    assert "--sequence-length" in ended.stdout or script not in RECURRENT


@pytest.mark.parametrize(
    ("words", "after"),
    [([""], "tool.py"), (["runs", ""], "runs"), (["--out", ""], "--out"), (["--out="], "--out")],
)
def test_an_empty_word_is_refused(words, after, monkeypatch, capsys):
    monkeypatch.setattr(cli, "program", lambda: "tool.py")
    parser = cli.Parser("A tool.")
    parser.add_argument("--out")
    parser.add_argument("folders", nargs="*")
    with pytest.raises(SystemExit) as end:
        parser.parse_args(words)
    assert end.value.code == 2
    assert f"an empty word after {after}; " in capsys.readouterr().err


@pytest.mark.parametrize("tool", sorted(path.stem for path in ROOT.glob("benchmark/[a-z]*.py")))
def test_the_help_of_a_tool_is_there_without_torch(tool):
    code = f"import sys; sys.argv = ['{tool}', '--help']\ntry:\n    import runpy; "
    code += f"runpy.run_module('benchmark.{tool}', run_name='__main__')\nexcept SystemExit:\n    "
    code += "print('torch' in sys.modules)"
    ended = call("-c", code)
    assert ended.stdout.splitlines()[-1] == "False", ended


@pytest.mark.parametrize("script", SCRIPTS)
def test_lengths_in_the_help_have_a_unit(script):
    text = " ".join(call(f"{script}.py", "--help").stdout.split())
    for name in ("total-steps", "eval-every", "buffer-size", "learning-starts"):
        entry = re.search(rf"--{name} [A-Z_]+ (.*?)\(default", text).group(1)
        assert re.search(r"\[(env steps|frames)\]", entry), entry


def test_a_pendulum_run_loads_no_simulator(tmp_path):
    code = (
        "import sys, sac; sac.main(sac.parse_args(sys.argv[1:]));"
        "print([m for m in ('pybullet', 'dm_control', 'mujoco', 'matplotlib') if m in sys.modules])"
    )
    argv = tiny("sac", "--run-dir", tmp_path / "run", env="pendulum-p-v0")
    ended = call("-c", code, *argv, "--eval-episodes", 1)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]"


def test_what_was_typed_is_known_in_both_ways_of_writing_it(monkeypatch):
    parse = importlib.import_module("sac").parse_args
    assert parse(["--lr=0.5", "--batch-size", "3"]).typed == ["batch_size", "lr"]
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # of a process that only imports yet
    monkeypatch.setattr(sys, "argv", ["sac.py", "--lr", "0.5"])
    assert parse().typed == ["lr"]


@pytest.mark.parametrize("value", ["-1e-1", "-.1", "-0.1"])
def test_a_negative_number_may_be_written_in_any_way(value):
    parse = importlib.import_module("sac").parse_args
    assert parse(["--target-entropy", value]).target_entropy == -0.1
