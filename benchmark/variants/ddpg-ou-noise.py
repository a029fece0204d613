"""ddpg.py with the paper's noise: an Ornstein-Uhlenbeck process, correlated in time.

theta = 0.15 and sigma = 0.2 (arXiv:1509.02971v6, Section 7), in parts of half the action range; one
process goes on through all episodes.
"""

from variant import changed

START = (
    "        self.exploration_noise = args.exploration_noise\n",
    "        self.noise = 0.0\n",
)
STEP = (
    "            action += self.exploration_noise * torch.randn_like(action)\n",
    "            self.noise = (1 - 0.15) * self.noise + 0.2 * torch.randn_like(action)\n"
    "            action += self.noise\n",
)
exec(changed(__file__, START, STEP))
