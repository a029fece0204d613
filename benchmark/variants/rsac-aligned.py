"""What happens if all windows of a batch lie at the same time of their episodes?"""

from variant import changed

DRAW = "rows = rng.integers(stored, size=batch_size)"
SAME_TIME = """\
stored = np.arange(stored)
        first = np.append(True, self.ended[stored[:-1]])  # with one environment
        time = stored - np.maximum.accumulate(np.where(first, stored, 0))
        rows = rng.choice(np.flatnonzero(time == rng.choice(time)), batch_size)"""
OFFSET = "rng.integers(length, size=(batch_size, 1))"
exec(changed(__file__, (DRAW, SAME_TIME), (OFFSET, "rng.integers(length, size=(1, 1))")))
