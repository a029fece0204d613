"""rsac.py with pink noise: random actions that agree over many steps explore further.

Eberhard et al. 2023, "Pink Noise Is All You Need" (ICLR 2023). At each step the noise is a standard
normal number, as before, so each single action is as random. But given earlier actions, which the
memory reads, the noise can be foretold in part: what acts is not quite the policy that learns, as
always in replay. Theirs is drawn for a whole episode at a time. Here it is a sum of six first-order
processes with time scales of 0.25 to 256 steps, each four times as long as the one before, whose
spectrum is close to 1/f; it goes on through all episodes.
"""

from variant import changed

START = (
    '        self.register_buffer("reward_scale", torch.ones(()))\n',
    """\
        self.register_buffer("reward_scale", torch.ones(()))
        self.register_buffer("parts", torch.randn(6, args.num_envs, action_dim))
""",
)
STEP = (
    "        u = mean if deterministic else mean + log_std.exp() * torch.randn_like(mean)\n",
    """\
        if deterministic:
            return torch.tanh(mean).cpu().numpy(), hidden
        assert len(obs) == self.parts.shape[1]  # one noise for each environment
        keep = torch.exp(-4.0 ** torch.arange(1, -5, -1, device=self.device))[:, None, None]
        fresh = torch.randn_like(self.parts)
        self.parts.copy_(keep * self.parts + (1 - keep.square()).sqrt() * fresh)
        u = mean + log_std.exp() * self.parts.sum(dim=0) / 6**0.5
""",
)
exec(changed(__file__, START, STEP))
