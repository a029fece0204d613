"""--compile: the same `update`, with less time between its operations."""

import os
import shutil

import torch

from common.errors import UserError

WARM_UP = 3  # ordinary updates before a capture, as PyTorch's notes on CUDA graphs ask for


def compile_update(update, optimizers, device):
    """A function with the arguments and, up to rounding, the results of a script's `update`.

    On a GPU the whole update is captured in a CUDA graph: one launch instead of hundreds. On the
    CPU torch.compile fuses what lies between matrix products. Not tested on a GPU yet.
    Raises UserError if the CPU has no C++ compiler, which torch.compile needs there.
    """
    if torch.device(device).type == "cuda":
        return CudaGraphs(update, optimizers)
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise UserError(
            f"--compile on the cpu needs a C++ compiler, and {compiler} is not here; "
            "install one or leave --compile out"
        )
    for optimizer in optimizers.values():
        # Fused Adam is one operation already; compiled, each learning rate would be a new program.
        for name in ("descend", "step"):  # `step`: in a copy with an optimizer of PyTorch itself
            if method := getattr(optimizer, name, None):
                setattr(optimizer, name, torch.compiler.disable(method))
    # Its own random numbers are others than those of PyTorch; the results are to stay the same.
    return torch.compile(update, options={"fallback_random": True})


class CudaGraphs:
    """Plays an update back as a CUDA graph; one graph for each set of flags after `args`.

    The first updates run as they are, on a stream of their own: they are part of the training, so
    nothing has to be undone. A graph works on fixed places in memory, so the batch is copied into
    them, and learning rates are tensors while it is captured.
    """

    def __init__(self, update, optimizers):
        self.update = update
        self.groups = [group for opt in optimizers.values() for group in opt.param_groups]
        self.stream, self.graphs, self.calls = torch.cuda.Stream(), {}, {}
        self.batch = self.rates = None

    def __call__(self, agent, optimizers, batch, args, *flags):
        if self.batch is None:
            self.batch = [torch.empty_like(x) for x in batch]
            self.rates = [torch.empty((), device=batch[0].device) for _ in self.groups]
        for fixed, x in zip(self.batch, batch, strict=True):
            fixed.copy_(x)
        for rate, group in zip(self.rates, self.groups, strict=True):
            rate.fill_(group["lr"])
        if flags not in self.graphs:
            self.calls[flags] = self.calls.get(flags, 0) + 1
            if self.calls[flags] <= WARM_UP:
                return self._warm_up(agent, optimizers, args, flags)
            self.graphs[flags] = self._capture(agent, optimizers, args, flags)
        graph, losses = self.graphs[flags]
        graph.replay()
        return losses

    def _warm_up(self, agent, optimizers, args, flags):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), CapturableRates(self.groups, self.rates):
            losses = self.update(agent, optimizers, self.batch, args, *flags)
        torch.cuda.current_stream().wait_stream(self.stream)
        return losses

    def _capture(self, agent, optimizers, args, flags):
        """Records the update without doing it."""
        graph = torch.cuda.CUDAGraph()
        with CapturableRates(self.groups, self.rates), torch.cuda.graph(graph, stream=self.stream):
            losses = self.update(agent, optimizers, self.batch, args, *flags)
        return graph, losses


class CapturableRates:
    """Within it, optimizers take their learning rates from tensors and never look at the host."""

    def __init__(self, groups, rates):
        self.groups, self.rates = groups, rates

    def __enter__(self):
        self.before = [(group["lr"], group["capturable"]) for group in self.groups]
        for group, rate in zip(self.groups, self.rates, strict=True):
            group["lr"], group["capturable"] = rate, True

    def __exit__(self, *error):
        for group, (lr, capturable) in zip(self.groups, self.before, strict=True):
            group["lr"], group["capturable"] = lr, capturable
