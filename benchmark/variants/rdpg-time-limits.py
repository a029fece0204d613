"""rdpg.py, if every time limit were an end of the task: the value beyond it is 0.

Where an agent waits until its time runs out, is it the value beyond the limit that makes it wait?
See docs/environments/bumps.md.
"""

from variant import changed

CALL = (
    "        buffer.add(obs, action, reward, next_obs, terminated, truncated)\n",
    "        buffer.add(obs, action, reward, next_obs, terminated | truncated, truncated)\n",
)
exec(changed(__file__, CALL))
