"""A bug: rsac.py also learns from padding, as from steps with zeros in them."""

from variant import changed

REAL_STEPS = (
    """\
        rows, steps = read[learned], (b * obs.shape[1] + t)[learned]
        batch = (obs, self.action[rows], self.reward[rows], self.terminated[rows], steps)
""",
    """\
        stored = np.full(obs.shape[:2], -1)
        stored[b, t] = np.where(learned, read, -2)  # -2: the context
        stored[:, -1] = -2  # has a next observation alone
        steps = np.flatnonzero(stored > -2)
        rows = stored.ravel()[steps]
        real = rows[:, None] >= 0
        batch = (obs, self.action[rows] * real, self.reward[rows] * real)
        batch += (self.terminated[rows] * real, steps)
""",
)
exec(changed(__file__, REAL_STEPS))
