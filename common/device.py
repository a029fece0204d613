"""PyTorch's device, threads and seed."""

import sys

import numpy as np
import torch

from common.errors import UserError


def set_up_torch(args):
    """Sets the threads and the seed and says which. UserError if --device is not there."""
    try:
        torch.zeros(1, device=args.device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--device {args.device} is not available ({reason}); try cpu") from error
    for dtype in (np.float32, np.float64):
        np.finfo(dtype)  # kept by NumPy, whose older versions warn if they first look later
    # Numbers below 1e-38 count as 0: a CPU is many times slower with them, and behind a unit of a
    # ReLU that is dead, Adam's running mean shrinks to the smallest one and stays there.
    torch.set_flush_denormal(True)
    torch.set_num_threads(args.num_threads)
    torch.manual_seed(args.seed)
    text = f"device {args.device}, {args.num_threads} threads, seed {args.seed}"
    print(text, file=sys.stderr)
