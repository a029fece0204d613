"""sac.py without bounds of the log standard deviation."""

from variant import run

run(
    "sac",
    (
        """\
        return mean, log_std.clamp(-20, 2)
""",
        """\
        return mean, log_std
""",
    ),
)
