"""sac.py with alpha, not log alpha, in alpha's loss, as arXiv:1812.05905v2, Eq. 18 has it."""

from variant import changed

LOSS = ("return -log_alpha * (", "return -log_alpha.exp() * (")
exec(changed(__file__, LOSS))
