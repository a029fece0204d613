"""A bug: rsac.py acts from an empty memory at every step. docs/ten_bugs.md shows what it does."""

from variant import changed

ACT = ("self.actor.rnn(obs[:, None], hidden)", "self.actor.rnn(obs[:, None])")
exec(changed(__file__, ACT))
