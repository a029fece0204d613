"""What happens if the target takes the mean of both critics too, as BRO does (arXiv:2405.16158)?"""

from variant import changed

MEAN = ("torch.min(next_q1, next_q2) - alpha", "(next_q1 + next_q2) / 2 - alpha")

exec(changed(__file__, MEAN))
