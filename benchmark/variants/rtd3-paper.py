"""rtd3.py as in Yang & Nguyen 2021 (arXiv:2110.12628v1); paper.py says how."""

from paper import COMMON, NO_PENALTY, OWN_MEMORIES
from variant import changed

exec(changed(__file__, *COMMON, NO_PENALTY, OWN_MEMORIES))
