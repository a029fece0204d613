"""What happens if the actor's loss trains the shared memory, too?"""

from variant import changed

BOTH = "[*agent.actor.parameters(), *agent.critics.rnn.parameters()]"
OPTIMIZER = (
    '"actor": Adam(agent.actor.parameters(), args.lr, fused=True)',
    f'"actor": Adam({BOTH}, args.lr, fused=True)',
)
FEATURES = (
    "actor_feat = feat[steps].detach()  # the actor reads the memory, it does not train it",
    "actor_feat = agent.critics.rnn(obs)[0].flatten(0, 1)[steps]",
)
CRITICS = (
    "q1, q2 = agent.critics(actor_feat, new_action)",
    "q1, q2 = agent.critics(actor_feat.detach(), new_action)",
)
GRADIENTS = ("inputs=list(agent.actor.parameters())", f"inputs={BOTH}")
CLIPPED = ("clip_grad_norm_(agent.actor.parameters(),", f"clip_grad_norm_({BOTH},")
exec(changed(__file__, OPTIMIZER, FEATURES, CRITICS, GRADIENTS, CLIPPED))
