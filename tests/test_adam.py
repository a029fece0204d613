"""common/adam.py beside PyTorch's own Adam: the same numbers, the same checkpoints."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.adam import Adam

ROOT = Path(__file__).parent.parent
SHAPES = [(3, 4), (4,), (), (2, 3, 1)]


def make_pair():
    """Ours and PyTorch's, each with parameters of its own: two groups, and one without any."""
    pair = []
    for kind, options in (Adam, {}), (torch.optim.Adam, {"fused": True}):
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
        groups = [
            {"params": params[:3], "lr": 1e-2, "base_lr": 1e-2},
            {"params": [], "lr": 1.0},
            {"params": params[3:], "lr": 1e-1, "weight_decay": 0.1, "betas": (0.5, 0.9)},
        ]
        pair.append((kind(groups, **options), params))
    return pair


def descend(ours, theirs, count=5, seed=0):
    """Some steps of both on the same gradients, of every size, with rates that change."""
    random = torch.Generator().manual_seed(seed)
    for number in range(count):
        grads = tuple(
            10.0 ** (2 * k - 4) * torch.randn(s, generator=random) for k, s in enumerate(SHAPES)
        )
        for optimizer, params in (ours, theirs):
            optimizer.param_groups[0]["lr"] = 1e-2 / (number + 1)
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad.clone()
        ours[0].descend(grads)
        theirs[0].step()


def assert_equal(ours, theirs):
    for a, b in zip(ours[1], theirs[1], strict=True):
        assert torch.equal(a, b)
    states = [optimizer.state_dict()["state"] for optimizer, _ in (ours, theirs)]
    assert states[0].keys() == states[1].keys()
    for key, state in states[1].items():
        assert states[0][key].keys() == state.keys()
        for name, value in state.items():
            assert torch.equal(states[0][key][name], value)


def test_the_numbers_are_those_of_pytorch_to_the_last_bit():
    ours, theirs = make_pair()
    before = [param.clone() for param in ours[1]]
    descend(ours, theirs)
    assert_equal(ours, theirs)
    assert not any(torch.equal(a, b) for a, b in zip(before, ours[1], strict=True))


@pytest.mark.parametrize("steps_before", [0, 3])
def test_checkpoints_go_from_one_to_the_other_and_back(tmp_path, steps_before):
    ours, theirs = make_pair()
    descend(ours, theirs, steps_before)
    for number, (source, target) in enumerate([(ours, theirs), (theirs, ours)]):
        descend(ours, theirs, seed=number + 1)
        torch.save(source[0].state_dict(), tmp_path / "optimizer.pt")
        target[0].load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
        descend(ours, theirs, seed=number + 3)
        assert_equal(ours, theirs)


def test_a_copy_goes_on_by_itself():
    ours, theirs = make_pair()
    descend(ours, theirs)
    copied, params = copy.deepcopy(ours)
    descend(ours, theirs, 2)
    assert_equal(ours, theirs)
    for _ in range(2):  # what the copy has missed is made up for by its own steps alone
        steps = [state["step"].item() for state in copied.state_dict()["state"].values()]
        copied.descend(tuple(torch.zeros_like(param) for param in params))
        after = [state["step"].item() for state in copied.state_dict()["state"].values()]
        assert after == [step + 1 for step in steps]
    assert_equal(ours, theirs)


def test_step_still_works_as_in_pytorch():
    ours, theirs = make_pair()
    descend(ours, theirs)
    for optimizer, params in (ours, theirs):
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()
    descend(ours, theirs, seed=1)
    assert_equal(ours, theirs)


def test_a_group_that_is_added_later_learns_too():
    ours, theirs = make_pair()
    descend(ours, theirs)
    extra = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    grads = tuple(torch.full_like(param, 0.5) for param in [*ours[1], extra[0]])
    for (optimizer, params), new in zip((ours, theirs), extra, strict=True):
        optimizer.add_param_group({"params": [new]})
        params.append(new)
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad.clone()
    ours[0].descend(grads)
    theirs[0].step()
    assert_equal(ours, theirs)


def test_fewer_gradients_than_parameters_are_an_error():
    (optimizer, params), _ = make_pair()
    with pytest.raises(RuntimeError):
        optimizer.descend(tuple(torch.zeros_like(param) for param in params[:-1]))


DEAD_UNIT = """
import sys
import numpy as np, torch
from common.adam import Adam
from common.run import tune_cpu
torch.set_num_threads(2)
if sys.argv[1] == "tuned":
    tune_cpu()
np.finfo(np.float32), np.finfo(np.float64)
param = torch.nn.Parameter(torch.ones(20_000))
optimizer = Adam([{"params": [param], "lr": 1e-3}])
for number in range(1200):
    optimizer.descend((torch.full_like(param, float(number == 0)),))
mean = optimizer.state[param]["exp_avg"].numpy().view(np.uint32)  # bits: a denormal can pass for 0
print((mean > 0).sum(), param.detach().double().sum().item())
"""


def test_without_denormals_adam_ends_at_zero_behind_a_dead_unit_and_learns_the_same():
    """In every thread, and no warning of NumPy's reaches the user."""
    found = {}
    for setting in ("plain", "tuned"):
        command = [sys.executable, "-W", "error", "-c", DEAD_UNIT, setting]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert (ended.returncode, ended.stderr) == (0, "")
        found[setting] = ended.stdout.split()
    assert found["plain"][0] == "20000"  # at the smallest number there is, for ever
    assert found["tuned"][0] == "0"
    assert found["plain"][1] == found["tuned"][1]
