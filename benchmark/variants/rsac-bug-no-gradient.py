"""A bug: no gradient reaches the steps before those with a loss."""

from variant import changed

UPDATE = "def update(agent, optimizers, batch, args):\n"
WARM_UP = '''\
def warm_up(memory, obs, steps):
    """Features of all steps; those before the first one with a loss have no gradient."""
    feats = []
    for b, sequence in enumerate(obs):
        first = max(1, int((steps[steps // len(sequence) == b] % len(sequence)).min()))
        with torch.no_grad():
            context, hidden = memory(sequence[None, :first])
        feats.append(torch.cat([context, memory(sequence[None, first:], hidden)[0]], dim=1))
    return torch.cat(feats)


'''
ACTOR = ("agent.actor.rnn(obs)[0].flatten", "warm_up(agent.actor.rnn, obs, steps).flatten")
CRITICS = ("agent.critics.rnn(obs)[0].flatten", "warm_up(agent.critics.rnn, obs, steps).flatten")
exec(changed(__file__, (UPDATE, WARM_UP + UPDATE), ACTOR, CRITICS))
