"""sac.py without bounds of the log standard deviation."""

from variant import changed

CLAMP = ("return mean, log_std.clamp(-20, 2)", "return mean, log_std")
exec(changed(__file__, CLAMP))
