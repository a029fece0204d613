"""Adam as PyTorch computes it, with less Python around it."""

import torch


class Adam(torch.optim.Adam):
    """`torch.optim.Adam(groups, fused=True)` with a quicker step: same numbers, same checkpoints.

    For a small network on a CPU, `step` spends as long on its surroundings as on arithmetic: it
    hands itself to the profiler, sorts tensors by device and type, counts steps tensor by tensor.
    `descend` calls the same operation at once, on lists made beforehand.
    """

    def __init__(self, groups):
        self.lists = []
        super().__init__(groups, fused=True)

    def add_param_group(self, param_group):
        """As in `torch.optim.Adam`."""
        super().add_param_group(param_group)
        self.lists.append(self._list(param_group["params"]))

    def __setstate__(self, state):  # after a checkpoint or a copy: the state has other tensors now
        super().__setstate__(state)
        self.lists = [self._list(group["params"]) for group in self.param_groups]

    @torch.no_grad()
    def descend(self, grads):
        """One step down `grads`, a tuple with a gradient for each parameter, group after group."""
        for group, (means, squares, steps, count) in zip(
            self.param_groups, self.lists, strict=True
        ):
            params = group["params"]
            own_grads, grads = grads[: len(params)], grads[len(params) :]
            if not params:
                continue
            count += 1  # and with it each of `steps`
            torch._fused_adam_(
                params,
                own_grads,
                means,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    @torch.no_grad()
    def _list(self, params):
        """The state of all parameters, as the operation takes it; begins at zero.

        The numbers of steps taken are views of one tensor, so that one addition counts all.
        """
        count = torch.zeros(len(params), device=params[0].device if params else None)
        for param, step in zip(params, count, strict=True):
            state = self.state[param]
            step.copy_(state.get("step", step))
            state["step"] = step
            for name in ("exp_avg", "exp_avg_sq"):
                state.setdefault(name, torch.zeros_like(param))
        states = [self.state[param] for param in params]
        return *([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq", "step")), count
