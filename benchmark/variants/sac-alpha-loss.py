"""sac.py with alpha, not log alpha, in alpha's loss, as arXiv:1812.05905v2, Eq. 18 has it."""

from variant import run

run(
    "sac",
    (
        """\
    return -log_alpha * (log_prob.detach() + target_entropy)
""",
        """\
    return -log_alpha.exp() * (log_prob.detach() + target_entropy)
""",
    ),
)
