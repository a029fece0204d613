"""ddpg.py with the paper's weight decay of the critic, 0.01 (arXiv:1509.02971v6, Section 7)."""

from variant import changed

WITHOUT = "agent.critics.parameters(), args.lr,"
exec(changed(__file__, (WITHOUT, f"{WITHOUT} weight_decay=0.01,")))
