"""A bug: sequences of rsac.py go on from one episode into the next."""

from variant import changed

SAME_EPISODE = (
    "self.place[around] == self.place[rows, None] + offset",
    "around < self.num_added",
)
# Where one episode meets the next, the first observation of the next one is kept.
OBS = (
    """\
        obs[b, t] = self.obs[read]
        obs[b, t + 1] = self.next_obs[read]
""",
    """\
        obs[b, t + 1] = self.next_obs[read]
        obs[b, t] = self.obs[read]
""",
)
exec(changed(__file__, SAME_EPISODE, OBS))
