"""ddpg.py with last layers that start within 0.003 of zero (arXiv:1509.02971v6, Section 7)."""

from variant import run

run(
    "ddpg",
    (
        """\
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))
""",
        """\
    last = nn.Linear(input_dim, output_dim)
    for param in last.parameters():
        nn.init.uniform_(param, -3e-3, 3e-3)
    return nn.Sequential(*layers, last)
""",
    ),
)
