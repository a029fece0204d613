"""ddpg.py with the paper's weight decay of the critic, 0.01 (arXiv:1509.02971v6, Section 7)."""

from variant import run

run(
    "ddpg",
    (
        """\
    return {
        "qf1": make_adam((agent.qf1.parameters(), args.lr)),
""",
        """\
    qf1 = {"params": list(agent.qf1.parameters()), "lr": args.lr, "base_lr": args.lr}
    return {
        "qf1": Adam([qf1 | {"weight_decay": 0.01}]),
""",
    ),
)
