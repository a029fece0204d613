"""What happens with the lower of two critics, as in SAC, instead of their mean?"""

from paper import LOWER_CRITIC
from variant import changed

exec(changed(__file__, *LOWER_CRITIC))
