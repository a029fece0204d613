"""ddpg.py whose critic takes the action at its second layer (arXiv:1509.02971v6, Section 7)."""

from variant import run

run(
    "ddpg",
    (
        """\
        self.net = mlp(feat_dim + action_dim, hidden_dims, 1)
""",
        """\
        self.first = nn.Linear(feat_dim, hidden_dims[0])
        self.net = mlp(hidden_dims[0] + action_dim, hidden_dims[1:], 1)
""",
    ),
    (
        """\
        return self.net(torch.cat([feat, action], dim=-1))
""",
        """\
        feat = torch.relu(self.first(feat))
        return self.net(torch.cat([feat, action], dim=-1))
""",
    ),
)
