"""rdpg.py, if every time limit were an end of the task: the value beyond it is 0.

Where an agent waits until its time runs out, is it the value beyond the limit that makes it wait?
See docs/environments/bumps.md.
"""

from variant import TIME_LIMITS, changed

exec(changed(__file__, TIME_LIMITS))
