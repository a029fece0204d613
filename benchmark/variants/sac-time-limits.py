"""sac.py as it is often written by mistake: a time limit stops the bootstrap, too."""

from variant import changed

STORED = (
    "buffer.add(obs, action, reward, next_obs, terminated)",
    "buffer.add(obs, action, reward, next_obs, terminated | truncated)",
)
exec(changed(__file__, STORED))
