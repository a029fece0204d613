"""The environments. `import envs` registers them all with Gymnasium, and imports no simulator.

envs/table.py lists them, envs/suite.py has the ids of dm_control's tasks; `python -m envs` prints
the list.
"""

from envs.suite import IDS
from envs.table import ENVS, register

for _id in (*ENVS, *IDS):
    register(_id)
