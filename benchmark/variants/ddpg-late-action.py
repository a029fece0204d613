"""ddpg.py whose critic takes the action at its second layer (arXiv:1509.02971v6, Section 7)."""

from variant import changed

FIRST = (
    "        self.qf1 = mlp(obs_dim + action_dim, args.hidden_dims, 1)\n",
    "        self.first = nn.Linear(obs_dim, args.hidden_dims[0])\n"
    "        self.qf1 = mlp(args.hidden_dims[0] + action_dim, args.hidden_dims[1:], 1)\n",
)
SECOND = (
    "        feat = torch.cat([feat, action], dim=-1)\n",
    "        feat = torch.cat([torch.relu(self.first(feat)), action], dim=-1)\n",
)
exec(changed(__file__, FIRST, SECOND))
