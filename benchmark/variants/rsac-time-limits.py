"""rsac.py, if every time limit were an end of the task: the value beyond it is 0.

It may help where waiting must not pay, since a memory can count the steps. See
docs/environments/bumps.md.
"""

from variant import TIME_LIMITS, changed

exec(changed(__file__, TIME_LIMITS))
