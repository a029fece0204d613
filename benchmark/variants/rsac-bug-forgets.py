"""A bug: rsac.py acts from an empty memory at every step. docs/ten_bugs.md shows what it does."""

from variant import changed

ACT = ("actor.rnn(obs[:, None], hidden)", "actor.rnn(obs[:, None])")
exec(changed(__file__, ACT))
