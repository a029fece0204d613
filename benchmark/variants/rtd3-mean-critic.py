"""What happens if the target takes the mean of both critics instead of the lower one?"""

from variant import changed

exec(changed(__file__, ("torch.min(next_q1, next_q2)", "(next_q1 + next_q2) / 2")))
