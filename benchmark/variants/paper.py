"""What the recurrent scripts have different in Yang & Nguyen 2021 (arXiv:2110.12628v1).

As published with their code: whole episodes, one update per step, two LSTM layers that read the
observation alone, one memory for the actor and one for each critic, no LayerNorm. Even so, here
time limits are bootstrapped through on every task (theirs were stored as terminal on the
cart-poles), the memory also runs on during the random steps and has no biases but an input of 1,
the policy that acts changes within episodes, and padding stays out of alpha's loss.
"""

DEFAULTS = (
    "    return parser.parse(argv)\n",
    """\
    parser.set_defaults(total_steps=100_000, eval_every=1000, learning_starts=10_000)
    parser.set_defaults(updates_per_step=1.0, batch_size=10, hidden_dims=[256, 256], tau=0.005)
    parser.set_defaults(lr=3e-4, sequence_length=0, context_length=0, rnn_dim=256)
    parser.set_defaults(lr_schedule="constant", memory_input="obs")
    return parser.parse(argv)
""",
)
NETWORKS = """\
plain_mlp = mlp


def mlp(*dims, layer_norm=False):
    return plain_mlp(*dims)


class Memory(Memory):
    # Two layers. Their output is all that actor and critics see.

    def __init__(self, obs_dim, args):
        super().__init__(obs_dim, args)
        cell = type(self.rnn)
        self.rnn = cell(obs_dim, args.rnn_dim, num_layers=2, batch_first=True, bias=False)
        self.feat_dim = args.rnn_dim

    def forward(self, obs, hidden=None):
        return self.rnn(obs, hidden)


"""
TWO_CRITICS = """\
class TwoMemories(Memory):
    def __init__(self, obs_dim, args):
        super().__init__(obs_dim, args)
        self.second = Memory(obs_dim, args)

    def forward(self, obs, hidden=None):
        return torch.cat([super().forward(obs)[0], self.second(obs)[0]], dim=-1), None


class Critics(nn.Module):
    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.rnn = TwoMemories(obs_dim, args)
        self.qf1 = mlp(self.rnn.feat_dim + action_dim, args.hidden_dims, 1)
        self.qf2 = mlp(self.rnn.feat_dim + action_dim, args.hidden_dims, 1)

    def forward(self, feat, action):
        feat1, feat2 = feat.chunk(2, dim=-1)  # each critic has the feature of its own memory
        q1 = self.qf1(torch.cat([feat1, action], dim=-1))
        return q1, self.qf2(torch.cat([feat2, action], dim=-1))


"""
AGENT = "class Agent(nn.Module):\n"
ONE_MEMORY = (AGENT, NETWORKS + AGENT)
OWN_MEMORIES = (AGENT, NETWORKS + TWO_CRITICS + AGENT)
ALPHA = ("start_alpha(agent, reward=batch[2], mask=batch[4])\n", "pass  # it starts at 1\n")
