"""What happens without LayerNorm in the networks after the memory?"""

from variant import changed

exec(changed(__file__, ("nn.LayerNorm(dim), ", "")))
