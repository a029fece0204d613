"""A trained policy for any program; see docs/policies.md. Training does not import this file."""

import gymnasium as gym
import numpy as np
import torch

from benchmark import open_run
from common.checkpoint import load_checkpoint
from common.envs import make_env
from common.errors import UserError


def load(path, env_id=None, device="cpu"):
    """The policy of a run folder, a checkpoint or a file in policies/; needs no replay files.

    env_id: of the run; give it where the environment is in a module of your own.
    Raises UserError if it is damaged, or if its environment is not here or has changed.
    """
    options = ["--eval-episodes", 1, "--device", device, "--num-threads", torch.get_num_threads()]
    with torch.random.fork_rng(devices=[]):  # your random numbers on the CPU stay
        agent, envs = open_run(path, *options, env_id=env_id)
    envs.close()
    return Policy(agent, load_checkpoint(path, script=None)["args"])


class Policy:
    """Acts as `--evaluate` does: without noise, and with its memory. One episode at a time."""

    def __init__(self, agent, args):
        self.agent, memory_input = agent, args.get("memory_input")
        self.reads_reward = "reward" in (memory_input or "")
        self.given = Given(gym.make(args["env_id"]))
        self.env = make_env(args["env_id"], memory_input=memory_input, env=self.given)
        self.reset()

    def reset(self):
        """Empties the memory; call it at the start of each episode."""
        self.action = self.hidden = None

    def __call__(self, obs, reward=None):
        """The action for one observation, both as `gym.make(env_id)` has them, no batch axis.

        reward: of the step before; needed with --memory-input obs-action-reward alone.
        Raises UserError on an observation of another shape and on a reward that is missing.
        """
        shape = self.given.observation_space.shape  # None of a Dict or a Tuple
        if shape is not None and np.shape(obs) != shape:
            raise UserError(f"observation of shape {np.shape(obs)}; this policy needs {shape}")
        first = self.action is None
        if self.reads_reward and reward is None and not first:
            raise UserError("this policy also reads rewards: policy(obs, reward of the last step)")
        self.given.result = obs, reward or 0.0, False, False, {}
        network_input = (self.env.reset(seed=0) if first else self.env.step(self.action))[0]
        actions, self.hidden = self.agent.act(network_input[None], self.hidden, deterministic=True)
        self.action = actions[0]  # in [-1, 1]
        return self.env.get_wrapper_attr("action")(self.action)


class Given(gym.Wrapper):
    """Replaces the environment inside its wrappers: always returns `result`."""

    def reset(self, *, seed=None, options=None):
        """Returns the observation of `result`; no episode begins."""
        return self.result[0], {}

    def step(self, action):
        """Returns `result`; the action was taken elsewhere."""
        return self.result
