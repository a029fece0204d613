"""rsac_sharing.py as in Yang & Nguyen 2021 (arXiv:2110.12628v1); paper.py says how."""

from paper import ALPHA, COMMON, LOWER_CRITIC, ONE_MEMORY, REWARD_SCALE
from variant import changed

exec(changed(__file__, *COMMON, ONE_MEMORY, REWARD_SCALE, LOWER_CRITIC, *ALPHA))
