"""rsac.py with a part of the recipe of RESeL (Luo et al. 2024, arXiv:2405.15384).

As in the authors' code for pybullet (FanmingL/Recurrent-Offpolicy-RL, gen_tmuxp_mamba_pomdp.py):
memories learn at 1e-5, the networks after them at 3e-4 (actor) and 1e-3 (critics). Eight critics;
the target takes the lower of two that are drawn anew for each update (REDQ, arXiv:2101.05982v2),
the actor the mean of all. Actor and alpha learn in every second update.
Not taken over: a Mamba of width 256 in the place of the LSTM, whole episodes of 1,000 steps, one
update per step, and networks of two layers of 256.
"""

from paper import ALPHA
from variant import changed

DEFAULTS = (
    "    return parser.parse(argv)\n",
    """\
    parser.set_defaults(lr=1e-3, tau=0.005, gamma=0.99, max_grad_norm=1e9)
    parser.set_defaults(tau_average=1.0)  # evaluations play the newest policy
    return parser.parse(argv)
""",
)
HEADS = (
    (
        """\
        self.qf1 = mlp(args.rnn_dim + obs_dim + action_dim, args.hidden_dims, 1)
        self.qf2 = mlp(args.rnn_dim + obs_dim + action_dim, args.hidden_dims, 1)
""",
        """\
        input_dim = args.rnn_dim + obs_dim + action_dim
        self.qfs = nn.ModuleList([mlp(input_dim, args.hidden_dims, 1) for _ in range(8)])
""",
    ),
    ("return self.qf1(feat), self.qf2(feat)\n", "return tuple(qf(feat) for qf in self.qfs)\n"),
)
TARGET = (
    "next_q1, next_q2 = agent.critics_target(feat_target[steps + 1], next_action)\n",
    """\
next_qs = agent.critics_target(feat_target[steps + 1], next_action)
        next_q1, next_q2 = [next_qs[i] for i in torch.randperm(8)[:2]]
""",
)
CRITICS_LOSS = (
    """\
    q1, q2 = agent.critics(qf_feat[steps], action)
    qf_loss = critics_loss(q1, q2, y).mean()
""",
    """\
    qs = agent.critics(qf_feat[steps], action)
    qf_loss = sum(0.5 * (q - y).square() for q in qs).mean()
""",
)
ACTOR_LOSS = (
    "    q1, q2 = agent.critics(qf_feat[steps].detach(), new_action)\n",
    "    q1 = q2 = sum(agent.critics(qf_feat[steps].detach(), new_action)) / 8\n",
)
EVERY_SECOND = (
    (
        "def update(agent, optimizers, batch, args):\n",
        "def update(agent, optimizers, batch, args, all_of_it):\n",
    ),
    (
        "    new_action, log_prob = agent.actor.sample(actor_feat[steps])\n",
        """\
    if not all_of_it:
        soft_update(agent.critics_target, agent.critics, args.tau)
        return {"qf_loss": qf_loss}
    new_action, log_prob = agent.actor.sample(actor_feat[steps])
""",
    ),
    (
        "update(agent, optimizers, batch, args))\n",
        "update(agent, optimizers, batch, args, num_updates % 2 == 1))\n",
    ),
)
RATES = (
    (
        """\
        "critics": Adam(agent.critics.parameters(), args.lr, fused=True),
        "actor": Adam(agent.actor.parameters(), args.lr, fused=True),
        "alpha": Adam([agent.log_alpha], args.lr, fused=True),
""",
        """\
        "critics": Adam(groups(agent.critics), args.lr, fused=True),
        "actor": Adam(groups(agent.actor), 0.3 * args.lr, fused=True),
        "alpha": Adam([agent.log_alpha], 0.1 * args.lr, fused=True),
""",
    ),
    (
        "def make_optimizers(agent, args):\n",
        """\
def groups(network):
    heads = [x for name, x in network.named_parameters() if not name.startswith("rnn.")]
    return [{"params": heads}, {"params": network.rnn.parameters(), "lr": 1e-5}]


def make_optimizers(agent, args):
""",
    ),
)

CHANGES = [DEFAULTS, *HEADS, TARGET, CRITICS_LOSS, ACTOR_LOSS, *EVERY_SECOND, *RATES, *ALPHA]
exec(changed(__file__, *CHANGES))
