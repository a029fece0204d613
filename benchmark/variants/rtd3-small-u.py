"""rtd3.py whose actor pays for outputs far from 0 before tanh, where its gradient vanishes."""

from variant import run

run(
    "rtd3",
    (
        """\
    new_action = agent.actor(agent.actor_rnn.window(history[:, :-1], burn_in))
""",
        """\
    u = agent.actor.net(agent.actor_rnn.window(history[:, :-1], burn_in))
    new_action = torch.tanh(u)
""",
    ),
    (
        """\
    pi_loss = masked_mean(actor_loss(q1), mask)
""",
        """\
    pi_loss = masked_mean(actor_loss(q1) + 1e-3 * u.square().sum(dim=-1, keepdim=True), mask)
""",
    ),
)
