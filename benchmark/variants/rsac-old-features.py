"""rsac.py whose actor is judged by heads that just learned, on features from before that.

As in the code of Yang & Nguyen (2021).
"""

from variant import run

run(
    "rsac",
    (
        """\
    with torch.no_grad():
        qf_feats = agent.critics.remember(history[:, :-1], burn_in)
""",
        """\
    qf_feats = qf_feat[:, :-1].detach()
""",
    ),
)
