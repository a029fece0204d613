"""What happens if the actor, too, maximizes the lower of two critics, as in SAC?"""

from paper import LOWER_CRITIC
from variant import changed

exec(changed(__file__, LOWER_CRITIC))
