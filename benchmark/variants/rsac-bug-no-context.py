"""A bug: sequences of rsac.py begin in mid-episode, and their memory is empty there."""

from variant import changed

DRAW = "        rows = rng.integers("
exec(changed(__file__, (DRAW, "        context = 0\n" + DRAW)))
