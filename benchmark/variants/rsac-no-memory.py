"""rsac.py without its memory: what is left when only the latest observation is seen?

The summary of the steps so far is always 0. All else stays: LayerNorm, scales, clipping, losses,
the average policy. Start it with `--memory-input obs`, since an agent that sees its previous action
can leave itself notes in its actions.
"""

from variant import changed

FORWARD = (
    "        feat, hidden = super().forward(obs, hidden)\n",
    """\
        feat = obs.new_zeros(*obs.shape[:2], self.hidden_size)
        hidden = [obs.new_zeros(1, len(obs), self.hidden_size) for _ in range(2)]
""",
)
exec(changed(__file__, FORWARD))
