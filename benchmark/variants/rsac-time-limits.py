"""rsac.py, if every time limit were an end of the task: the value beyond it is 0.

That is right where waiting must not pay, and where a memory can count the steps.
"""

from variant import changed

CALL = (
    "        buffer.add(obs, action, reward, next_obs, terminated, truncated)\n",
    "        buffer.add(obs, action, reward, next_obs, terminated | truncated, truncated)\n",
)
exec(changed(__file__, CALL))
