"""rsac.py, if every time limit were an end of the task: the value beyond it is 0.

It may help where waiting must not pay, since a memory can count the steps. See
docs/environments/bumps.md.
"""

from variant import changed

CALL = (
    "        buffer.add(obs, action, reward, next_obs, terminated, truncated)\n",
    "        buffer.add(obs, action, reward, next_obs, terminated | truncated, truncated)\n",
)
exec(changed(__file__, CALL))
