"""--compile: the same results up to rounding, and one line where it cannot work.

On a GPU the update is a CUDA graph; that path has no test here.
"""

import shutil

import pytest
import torch

import ddpg
import sac
import td3
from common.compile import compile_update
from common.errors import UserError


def train(script, compiled, num_updates=4):
    """All parameters after some updates on fixed batches, as one tensor."""
    torch.manual_seed(0)
    args = script.parse_args(["--hidden-dims", "16", "--lr-schedule", "linear"])
    args.target_entropy = -2.0
    agent = script.Agent(3, 2, args)
    optimizers = script.make_optimizers(agent, args)
    learn = compile_update(script.update, optimizers, "cpu") if compiled else script.update
    for k in range(num_updates):
        script.scale_lr(optimizers, 1 - k / 10)
        torch.manual_seed(k)
        shapes = (32, 3), (32, 2), (32, 1), (32, 3), (32, 1)
        batch = [torch.rand(shape) for shape in shapes]
        learn(agent, optimizers, batch, args, *([k % 2 == 1] if script is td3 else []))
    return torch.cat([p.detach().reshape(-1) for p in agent.parameters()])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
@pytest.mark.parametrize("script", [ddpg, td3, sac])
def test_a_compiled_update_gives_the_same_parameters(script):
    torch.testing.assert_close(train(script, True), train(script, False), atol=1e-5, rtol=0)


@pytest.mark.parametrize("script", [ddpg, td3, sac])
def test_without_a_compiler_one_line_says_so_and_no_run_starts(script, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    args = ["--compile", "--env-id", "pendulum-v0", "--log-dir", str(tmp_path)]
    with pytest.raises(UserError, match="no-such-compiler is not here"):
        script.main(script.parse_args([*args, "--buffer-size", "1000"]))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
def test_a_copy_may_have_an_optimizer_of_pytorch_itself():
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([param], 0.1)
    compile_update(lambda: None, {"actor": optimizer}, "cpu")
    param.grad = torch.ones(3)
    optimizer.step()
    assert (param < 1).all()
