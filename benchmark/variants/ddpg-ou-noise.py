"""ddpg.py with the paper's noise: an Ornstein-Uhlenbeck process, correlated in time.

theta = 0.15 and sigma = 0.2 (arXiv:1509.02971v6, Section 7), in parts of half the action range; one
process goes on through all episodes.
"""

from variant import run

run(
    "ddpg",
    (
        """\
        self.exploration_noise, self.device = args.exploration_noise, args.device
""",
        """\
        self.noise, self.device = 0.0, args.device
""",
    ),
    (
        """\
            noise = self.exploration_noise * torch.randn_like(action)
            action = (action + noise).clamp(-1, 1)
""",
        """\
            self.noise = (1 - 0.15) * self.noise + 0.2 * torch.randn_like(action)
            action = (action + self.noise).clamp(-1, 1)
""",
    ),
)
