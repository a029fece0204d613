"""What the recurrent scripts have different in Yang & Nguyen 2021 (arXiv:2110.12628v1).

As published with their code: whole episodes, one update per step, two LSTM layers that read the
observation alone, one memory for the actor and one for each critic, no LayerNorm, no clipping of
gradients, no penalty on the outputs of deterministic actors, evaluations of the newest policy, and
in RSAC the lower of two critics in the actor's loss, too. Even so, here time limits are
bootstrapped through on every task (theirs were stored as terminal on the cart-poles), the memory
also runs on during the random steps, the policy that acts changes within episodes, episodes are
drawn by their lengths and also while they are under way, and padding stays out of alpha's loss.
"""

DEFAULTS = (
    "    return parser.parse(argv)\n",
    """\
    parser.set_defaults(total_steps=100_000, eval_every=1000, learning_starts=10_000)
    parser.set_defaults(updates_per_step=1.0, batch_size=10, hidden_dims=[256, 256], tau=0.005)
    parser.set_defaults(tau_average=1.0)  # evaluations play the newest policy
    parser.set_defaults(lr=3e-4, sequence_length=1000, context_length=0, rnn_dim=256)
    parser.set_defaults(memory_input="obs", gamma=0.99, max_grad_norm=1e9)
    return parser.parse(argv)
""",
)
WHOLE_EPISODES = (
    "        offset = np.arange(-context, length) - rng.integers(length, size=(batch_size, 1))\n",
    "        offset = np.arange(-length, length)  # all of an episode that is not longer\n",
)
NETWORKS = """\
def mlp(input_dim, hidden_dims, output_dim):
    dims = [input_dim, *hidden_dims]
    layers = [(nn.Linear(*pair), nn.ReLU()) for pair in zip(dims, hidden_dims)]
    return nn.Sequential(*sum(layers, ()), nn.Linear(dims[-1], output_dim))


class Memory(nn.LSTM):
    # Two layers. Their output is all that actor and critics see.

    def __init__(self, obs_dim, args):
        super().__init__(obs_dim, args.rnn_dim, num_layers=2, batch_first=True)

    def forward(self, obs, hidden=None):
        feat, hidden = super().forward(obs, hidden)
        return torch.cat([feat, torch.zeros_like(obs)], dim=-1), hidden


"""
TWO_CRITICS = """\
class TwoMemories(nn.Module):
    def __init__(self, obs_dim, args):
        super().__init__()
        self.first = Memory(obs_dim, args)
        self.second = Memory(obs_dim, args)

    def forward(self, obs, hidden=None):
        return torch.cat([self.first(obs)[0], self.second(obs)[0]], dim=-1), None


class Critics(nn.Module):
    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.rnn = TwoMemories(obs_dim, args)
        self.qf1 = mlp(args.rnn_dim + obs_dim + action_dim, args.hidden_dims, 1)
        self.qf2 = mlp(args.rnn_dim + obs_dim + action_dim, args.hidden_dims, 1)

    def forward(self, feat, action):
        feat1, feat2 = feat.chunk(2, dim=-1)  # each critic has the feature of its own memory
        q1 = self.qf1(torch.cat([feat1, action], dim=-1))
        return q1, self.qf2(torch.cat([feat2, action], dim=-1))


"""
AGENT = "class Agent(nn.Module):\n"
ONE_MEMORY = (AGENT, NETWORKS + AGENT)
OWN_MEMORIES = (AGENT, NETWORKS + TWO_CRITICS + AGENT)
OBS_SCALE = (
    "agent.obs_scale.copy_(batch[0].abs().amax(dim=(0, 1)).clamp(min=0.1))\n",
    "pass  # inputs as they are\n",
)
REWARD_SCALE = (
    "agent.reward_scale.copy_(rewards.abs().mean().clamp(min=0.01))\n",
    "pass  # rewards as they are\n",
)
ALPHA = (
    ("torch.tensor(0.1 if args.alpha", "torch.tensor(1.0 if args.alpha"),
    (
        '"--min-alpha", type=number(1e-9), default=0.03',
        '"--min-alpha", type=number(1e-9), default=1e-9',
    ),
)
NO_PENALTY = (" + 1e-3 * u.square().mean()\n", "\n")
LOWER_CRITIC = ("alpha * log_prob - (q1 + q2) / 2\n", "alpha * log_prob - torch.min(q1, q2)\n")
# What all four have, but their networks.
COMMON = (DEFAULTS, WHOLE_EPISODES, OBS_SCALE)
