"""A bug: padding comes before the steps of a sequence, so the memory of rsac.py reads it first."""

from variant import changed

SHIFT = ("t = t - inside.argmax(axis=1)[b]", "t = t - t.min()")
exec(changed(__file__, SHIFT))
