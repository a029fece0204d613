"""A bug: the memory of rsac.py has biases, so it does not stay empty on padding."""

from variant import changed

BIAS = ("batch_first=True, bias=False", "batch_first=True")
exec(changed(__file__, BIAS))
