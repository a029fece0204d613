"""sac.py as it is often written by mistake: a time limit stops the bootstrap, too."""

from variant import run

run(
    "sac",
    (
        """\
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
""",
        """\
        buffer.add(obs, action, reward, next_obs, terminated or truncated, truncated)
""",
    ),
)
