"""A bug: the memory of rsac.py takes the axis of the batch for the axis of time."""

from variant import changed

AXES = ("args.rnn_dim, batch_first=True", "args.rnn_dim")
exec(changed(__file__, AXES))
