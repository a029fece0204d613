"""Optimizers that leave the gradients of their last step in `param.grad`, for tests to read."""

import torch


def keep_gradients(optimizer):
    """The same optimizer, which from now on keeps them."""
    descend = optimizer.descend

    def keep_and_descend(grads):
        params = [param for group in optimizer.param_groups for param in group["params"]]
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        descend(grads)

    optimizer.descend = keep_and_descend
    return optimizer


class Sgd(torch.optim.SGD):
    """Plain gradient descent, with the method that the scripts call."""

    def descend(self, grads):
        self.step()


def make_sgd(*args):
    """As `torch.optim.SGD`."""
    return keep_gradients(Sgd(*args))
