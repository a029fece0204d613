"""ddpg.py with the paper's weight decay of the critic, 0.01 (arXiv:1509.02971v6, Section 7)."""

from variant import changed

DECAY = (
    "agent.critics.parameters(), args.lr,",
    "agent.critics.parameters(), args.lr, weight_decay=0.01,",
)
exec(changed(__file__, DECAY))
