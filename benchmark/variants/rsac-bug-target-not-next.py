"""A bug: the target of rsac.py is made of features of the same step, not of the next one."""

from variant import changed

ACTOR = ("actor.sample(actor_feat[steps + 1])", "actor.sample(actor_feat[steps])")
CRITICS = ("critics_target(feat_target[steps + 1],", "critics_target(feat_target[steps],")
exec(changed(__file__, ACTOR, CRITICS))
