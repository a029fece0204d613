"""Things that go wrong, put into a run before it starts (see script_runs.launch)."""

import errno
import importlib
import os
import signal
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import psutil
import toy_envs
from gymnasium.spaces import Box

import common.envs
import common.machine
import common.run


def kill_at(point):
    """The process is killed at the point-th flush, move or env step.

    A file that is being flushed is cut in half first, as a slow disk would leave it.
    """
    left = [point]

    def count(call, fatal):
        def counted(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                fatal(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    def halve(file):
        os.ftruncate(file, os.fstat(file).st_size // 2)

    os.fsync = count(os.fsync, halve)
    os.replace = count(os.replace, lambda *args: None)
    toy_envs.Toy.step = count(toy_envs.Toy.step, lambda *args: None)


def asked_to_stop_in_the_evaluation(step):
    """SIGTERM arrives while the agent is evaluated at this step."""
    evaluate = common.run.Run._evaluate

    def asked(run, global_step, num_updates):
        if global_step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        evaluate(run, global_step, num_updates)

    common.run.Run._evaluate = asked


def dies_after_its_checkpoint(step):
    """The process is killed when this checkpoint is there, before its row is."""
    tell = common.run.Run._tell

    def fatal(run):
        if run.rows[-1]["global_step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        tell(run)

    common.run.Run._tell = fatal


def another_array(script):
    """The replay buffer of this script has one more array."""
    buffer = importlib.import_module(script).ReplayBuffer
    init = buffer.__init__

    def with_weights(self, capacity, *dims):
        init(self, capacity, *dims)
        self.weight = np.zeros(capacity)

    buffer.__init__ = with_weights


def slow_steps(seconds):
    """Every step of an environment takes so long."""
    step = toy_envs.Toy.step
    toy_envs.Toy.step = lambda *args: (time.sleep(seconds), step(*args))[1]


def in_container(folder):
    """The files of cgroup lie in this folder; the machine itself has memory enough."""
    common.machine.CGROUP = Path(folder)
    psutil.virtual_memory = lambda: Namespace(available=2**40)


def full_disk(after):
    """No file can be flushed any more, from the after-th time on."""
    fsync, left = os.fsync, [after]

    def fail(file):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    os.fsync = fail


def file_size_limit(num_bytes):
    """No file can grow beyond this size, TensorBoard's included."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


def as_nobody():
    """The run is started by a user who may not write here."""
    if os.geteuid() == 0:
        os.setuid(65534)


def longest_episode(steps):
    """Episodes without a time limit are cut sooner."""
    common.envs.LONGEST_EPISODE = steps


def another_environment():
    """The environment has got one observation entry less than it had."""
    make, reset, step = toy_envs.Toy.__init__, toy_envs.Toy.reset, toy_envs.Toy.step

    def smaller(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)

    def first_two(call):
        def called(*args, **kwargs):
            obs, *rest = call(*args, **kwargs)
            return obs[:2], *rest

        return called

    toy_envs.Toy.__init__ = smaller
    toy_envs.Toy.reset, toy_envs.Toy.step = first_two(reset), first_two(step)


def own_randomness():
    """The environment draws from a generator that no seed sets."""
    rng, step = np.random.default_rng(), toy_envs.Toy.step

    def random_step(self, action):
        self.x = self.x + rng.normal(size=3)
        return step(self, action)

    toy_envs.Toy.step = random_step


def late_start(seconds):
    """The process has been there for a while when the run begins."""
    time.sleep(seconds)
