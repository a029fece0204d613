"""A bug: rsac.py takes its hidden state along into the next episode."""

from variant import changed

RESET = ("state[:, ended] = 0\n", "pass\n")
exec(changed(__file__, RESET))
