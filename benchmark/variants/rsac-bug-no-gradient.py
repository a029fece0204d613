"""A bug: no gradient reaches the steps before those with a loss."""

from variant import changed

UPDATE = "def update(agent, optimizers, batch, args):\n"
WARM_UP = '''\
def warm_up(memory, obs, steps):
    """Features of all steps; those before the first one with a loss have no gradient."""
    first = max(1, int((steps % obs.shape[1]).min()))
    with torch.no_grad():
        context, hidden = memory(obs[:, :first])
    feat, _ = memory(obs[:, first:], hidden)
    return torch.cat([context, feat], dim=1)


'''
ACTOR = ("agent.actor.rnn(obs)[0].flatten", "warm_up(agent.actor.rnn, obs, steps).flatten")
CRITICS = ("agent.critics.rnn(obs)[0].flatten", "warm_up(agent.critics.rnn, obs, steps).flatten")
exec(changed(__file__, (UPDATE, WARM_UP + UPDATE), ACTOR, CRITICS))
