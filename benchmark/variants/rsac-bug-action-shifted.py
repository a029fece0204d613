"""A bug: the memory of rsac.py reads the action of a step together with its observation."""

from variant import changed

NEXT = "        obs[b, t + 1] = self.next_obs[read]\n"
SHIFT = """\
        action = slice(-self.action.shape[1], None)
        obs[:, :-1, action] = obs[:, 1:, action].copy()
"""
exec(changed(__file__, (NEXT, NEXT + SHIFT)))
