"""ddpg.py with last layers that start within 0.003 of zero (arXiv:1509.02971v6, Section 7)."""

from variant import changed

LAST = (
    "    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))\n",
    "    last = nn.Linear(input_dim, output_dim)\n"
    "    for param in last.parameters():\n"
    "        nn.init.uniform_(param, -3e-3, 3e-3)\n"
    "    return nn.Sequential(*layers, last)\n",
)
exec(changed(__file__, LAST))
