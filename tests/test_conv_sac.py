"""SAC from pixels: replay of frames, random shifts, and who trains what."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.wrappers import FrameStackObservation, ReshapeObservation, TransformObservation
from hypothesis import given, settings
from hypothesis import strategies as st
from script_runs import checkpoint, differences, progress, run, tiny, train
from torch import nn
from torch.optim import SGD
from toy_envs import register

import conv_sac
from common.envs import check_pixels, make_envs
from common.replay_files import ReplayFiles, arrays_of
from conv_sac import Agent, ReplayBuffer, random_shift, update
from envs.wrappers import Pictures

STACK = 3


HERE = "test_conv_sac:"  # a run is another process, which has to import these environments


class Noise(gym.Env):
    """Random pictures in episodes of random length, 1 to 6 steps."""

    def __init__(self, shape=(36, 40), render_mode=None):
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.picture(), {}

    def step(self, action):
        ended = self.np_random.random() < 0.3
        return self.picture(), float(action[0]), bool(ended), False, {}

    def picture(self):
        return self.np_random.integers(1, 256, self.observation_space.shape, np.uint8)


def stacked(padding, shape=(36, 40), render_mode=None):
    return FrameStackObservation(Noise(shape), STACK, padding_type=padding)


def stacked_in_channels(render_mode=None):
    env = FrameStackObservation(Noise((2, 36, 40)), STACK, padding_type="zero")
    return ReshapeObservation(env, (2 * STACK, 36, 40))


def no_stack(render_mode=None):
    """A wrapper around the stack draws a line that moves, in all frames."""
    env = FrameStackObservation(Noise(), STACK)
    return TransformObservation(env, mark, env.observation_space)


def mark(obs):
    obs[:, int(obs.sum()) % 36] = 0
    return obs


register("ZeroPadded-v0", stacked, 6, padding="zero")
register("ResetPadded-v0", stacked, 6, padding="reset")
register("Colours-v0", stacked, 6, padding="reset", shape=(36, 40, 3))
register("TwoChannels-v0", stacked_in_channels, 6)
register("NoStack-v0", no_stack, 6)
for _name, _shape in {"First": (3, 36, 40), "Last": (36, 40, 3), "Grey": (36, 40)}.items():
    register(f"Noise{_name}-v0", Noise, 6, shape=_shape)


def make_args(*argv):
    args = conv_sac.parse_args(["--hidden-dims", "16", "16", *argv])
    args.target_entropy = -2.0
    return args


def make_agent(args, obs_shape=(3, 36, 40)):
    torch.manual_seed(0)
    agent = Agent(obs_shape, 2, args)
    with torch.no_grad():  # as after some training: targets differ from what they follow
        for weight in agent.critics_target.parameters():
            weight += 0.05 * torch.randn_like(weight)
    return agent


def make_batch(size=7, seed=0):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.integers(0, 256, (2, size, 3, 1, 36, 40), np.uint8)
    action = rng.uniform(-1, 1, (size, 2)).astype(np.float32)
    reward = rng.normal(size=(size, 1)).astype(np.float32)
    terminated = (np.arange(size)[:, None] % 3 == 0).astype(np.float32)
    discount = rng.choice([0.99, 0.99**2], (size, 1)).astype(np.float32)  # of one or two steps
    batch = obs, action, reward, next_obs, terminated, discount
    return [torch.from_numpy(x) for x in batch]


def with_sgd(agent, critics=0.01, actor=0.01):
    return {
        "critics": SGD(agent.critics.parameters(), critics),
        "actor": SGD(agent.actor.parameters(), actor),
        "alpha": SGD([agent.log_alpha], 0.01),
    }


# ---- One update ----


def gradients_at_step(optimizer, module):
    """A dict that fills with copies of the module's gradients when the optimizer steps."""
    found, original = {}, optimizer.step

    def step(*args, **kwargs):
        found.update({name: p.grad.clone() for name, p in module.named_parameters()})
        return original(*args, **kwargs)

    optimizer.step = step
    return found


def stable_baselines3(agent, args, batch):
    """Its own SAC.train() on one batch, from the same weights.

    There the actor judges anew with the encoder after the critics' step, here with the features
    from before it. So in this comparison the encoder stays as it is; its gradient is compared.
    """
    from stable_baselines3 import SAC
    from stable_baselines3.common.buffers import ReplayBufferSamples
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Extractor(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, 50)
            convs = nn.Sequential(
                *(nn.Conv2d(3, 16, 6, 4), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU()),
                *(nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten()),
            )
            size = convs(torch.zeros(1, *space.shape)).shape[1]
            self.net = nn.Sequential(convs, nn.Linear(size, 50), nn.LayerNorm(50), nn.Tanh())

        def forward(self, picture):
            return self.net(picture)

    kwargs = {"net_arch": [16, 16], "features_extractor_class": Extractor}
    kwargs |= {"optimizer_class": torch.optim.SGD, "share_features_extractor": False}
    kwargs |= {"optimizer_kwargs": {}}
    model = SAC(
        *("CnnPolicy", gym.make("NoiseFirst-v0", disable_env_checker=True)),
        **{"learning_rate": 0.01, "buffer_size": 10, "batch_size": len(batch[0])},
        **{"tau": args.tau, "gamma": args.gamma},
        **{"ent_coef": "auto", "policy_kwargs": kwargs, "device": "cpu"},
    )
    model.set_logger(configure(None, []))
    for critic, ours in (
        (model.critic, agent.critics),
        (model.critic_target, agent.critics_target),
    ):
        critic.features_extractor.net.load_state_dict(ours.encoder.state_dict())
        critic.qf0.load_state_dict(ours.qf1.state_dict())
        critic.qf1.load_state_dict(ours.qf2.state_dict())
    actor, ours = model.actor, agent.actor.net
    actor.features_extractor.net.load_state_dict(agent.critics.encoder.state_dict())
    actor.latent_pi.load_state_dict(ours[:-1].state_dict())
    for layer, half in ((actor.mu, slice(0, 2)), (actor.log_std, slice(2, 4))):
        layer.load_state_dict({"weight": ours[-1].weight[half], "bias": ours[-1].bias[half]})
    actor.action_dist.epsilon = 0.0  # its own remedy for log(0)
    heads = [*model.critic.qf0.parameters(), *model.critic.qf1.parameters()]
    model.critic.optimizer = torch.optim.SGD(heads, 0.01)
    layers = [actor.latent_pi, actor.mu, actor.log_std]
    actor.optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], 0.01)
    model.ent_coef_optimizer = torch.optim.SGD([model.log_ent_coef], 0.01)
    obs, action, reward, next_obs, terminated, discount = batch
    pictures = obs.flatten(1, 2), next_obs.flatten(1, 2)
    sample = ReplayBufferSamples(pictures[0], action, pictures[1], terminated, reward, discount)
    model.replay_buffer.sample = lambda *args, **kwargs: sample
    gradients = gradients_at_step(model.critic.optimizer, model.critic)
    model.train(gradient_steps=1, batch_size=len(obs))
    return model, gradients


@pytest.fixture
def fixed_noise(monkeypatch):
    """The same noise for every implementation, in the place of random numbers."""

    def noise(shape):
        return torch.linspace(-1.5, 1.5, int(np.prod(shape))).reshape(shape)

    monkeypatch.setattr(torch, "randn_like", lambda x: noise(x.shape))
    monkeypatch.setattr(
        torch.distributions.normal, "_standard_normal", lambda shape, dtype, device: noise(shape)
    )


def test_one_update_without_shifts_is_that_of_stable_baselines3(fixed_noise):
    args, batch = make_args("--shift-pad", "0"), make_batch()
    agent = make_agent(args)
    model, their_gradients = stable_baselines3(agent, args, batch)

    optimizers = with_sgd(agent)
    heads = [*agent.critics.qf1.parameters(), *agent.critics.qf2.parameters()]
    encoder = {"params": list(agent.critics.encoder.parameters()), "lr": 0.0}
    optimizers["critics"] = SGD([{"params": heads}, encoder], 0.01)
    gradients = gradients_at_step(optimizers["critics"], agent.critics)
    losses = update(agent, optimizers, batch, args)

    logged = model.logger.name_to_value
    names = {"qf_loss": "critic_loss", "actor_loss": "actor_loss"}
    for ours, theirs in names.items():
        assert losses[ours].item() == pytest.approx(logged[f"train/{theirs}"], abs=1e-5), ours
    for name, gradient in gradients.items():
        name = name.replace("encoder", "features_extractor.net")
        name = name.replace("qf1", "qf0").replace("qf2", "qf1")
        torch.testing.assert_close(gradient, their_gradients.pop(name), atol=1e-5, rtol=1e-5)
    assert their_gradients == {}  # the same parameters got gradients
    pairs = [
        (agent.critics.qf1, model.critic.qf0),
        (agent.critics.qf2, model.critic.qf1),
        (agent.critics_target.encoder, model.critic_target.features_extractor),
        (agent.critics_target.qf1, model.critic_target.qf0),
        (agent.critics_target.qf2, model.critic_target.qf1),
        (agent.actor.net[:-1], model.actor.latent_pi),
    ]
    for ours, theirs in pairs:
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    last = torch.cat([model.actor.mu.weight, model.actor.log_std.weight])
    torch.testing.assert_close(agent.actor.net[-1].weight, last, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        agent.log_alpha, model.log_ent_coef.reshape(()), atol=1e-6, rtol=1e-5
    )


def test_the_actor_loss_leaves_the_encoder_alone():
    args, batch = make_args("--shift-pad", "0"), make_batch()
    agent = make_agent(args)
    before = copy.deepcopy(agent.critics.state_dict()), copy.deepcopy(agent.actor.state_dict())
    optimizers = with_sgd(agent, critics=0.0)
    at_step = gradients_at_step(optimizers["critics"], agent.critics)
    update(agent, optimizers, batch, args)
    for name, weight in agent.critics.named_parameters():
        assert torch.equal(weight, before[0][name])
        assert torch.equal(weight.grad, at_step[name])  # nothing came after the critics' step
    assert all(not torch.equal(w, before[1][name]) for name, w in agent.actor.named_parameters())


def test_the_critics_loss_trains_every_layer_of_the_encoder():
    args, batch = make_args(), make_batch()
    agent = make_agent(args)
    before = copy.deepcopy(agent.critics.encoder.state_dict())
    update(agent, conv_sac.make_optimizers(agent, args), batch, args)
    for name, weight in agent.critics.encoder.named_parameters():
        assert not torch.equal(weight, before[name]), name


# ---- Replay of frames ----


def frame(number):
    return np.array([[number % 256, number // 256]], np.uint8)  # (H, W) = (1, 2)


class Steps:
    """A plain list of all steps, and the frames that a ring of `capacity` rows holds of them.

    Frames and actions are numbers that tell each step from all others.
    """

    def __init__(self, capacity, frame_stack, num_envs, repeat_first):
        self.buffer = ReplayBuffer(capacity, (frame_stack, 1, 2), 1, frame_stack)
        self.frame_stack, self.num_envs, self.repeat_first = frame_stack, num_envs, repeat_first
        self.num_rows, self.begins = 0, True
        self.stacks = [None] * num_envs
        self.steps = []  # dicts, a list of one for each environment at each time

    def add(self, ends):
        """One step of each environment. ends: "", "terminated" or "truncated" for each."""
        if self.begins:
            self.num_rows += self.frame_stack * self.num_envs
        now = []
        for env, end in enumerate(ends):
            number = self.num_envs * len(self.steps) + env + 1
            if self.stacks[env] is None:
                first = frame(10 * number)
                padding = [first if self.repeat_first else 0 * first] * (self.frame_stack - 1)
                self.stacks[env] = np.stack([*padding, first])
            step = {"number": number, "obs": self.stacks[env], "end": end}
            step["next_obs"] = np.stack([*self.stacks[env], frame(10 * number + 1)])[1:]
            step["first_row"] = self.num_rows + env - self.frame_stack * self.num_envs
            now.append(step)
            self.stacks[env] = None if end else step["next_obs"]
        self.num_rows += self.num_envs
        self.begins = any(ends)
        self.steps.append(now)
        obs, next_obs, number = (
            np.array([step[name] for step in now]) for name in ("obs", "next_obs", "number")
        )
        flags = (np.array([end == x for end in ends]) for x in ("terminated", "truncated"))
        self.buffer.add(obs, np.float32(number[:, None]), -number, next_obs, *flags)

    def expected(self, n_step, gamma):
        """What can be drawn: number -> obs, sum of rewards, next_obs, terminated, discount."""
        oldest, found = self.num_rows - self.buffer.capacity, {}
        for t, now in enumerate(self.steps):
            for env, step in enumerate(now):
                if step["first_row"] < oldest:
                    continue  # a frame of its observation has been overwritten
                total, discount = 0, 1
                for later in self.steps[t : t + n_step]:
                    total -= discount * later[env]["number"]
                    discount *= gamma
                    if any(x["end"] for x in later):
                        break
                end = later[env]
                found[step["number"]] = (
                    *(step["obs"], total, end["next_obs"], end["end"] == "terminated", discount),
                )
        return found


@settings(max_examples=80, deadline=None)
@given(
    more=st.integers(0, 60),
    frame_stack=st.integers(1, 4),
    repeat_first=st.booleans(),
    ends=st.lists(
        st.lists(st.sampled_from(["", "", "", "terminated", "truncated"]), min_size=3, max_size=3),
        min_size=1,
        max_size=60,
    ),
    num_envs=st.integers(1, 3),
    n_step=st.integers(1, 4),
)
def test_every_stack_is_rebuilt_as_it_was_seen(
    more, frame_stack, repeat_first, ends, num_envs, n_step
):
    capacity = (frame_stack + 1) * num_envs + more  # the smallest that `check_pixels` lets pass
    steps = Steps(capacity, frame_stack, num_envs, repeat_first)
    for end in ends:
        steps.add(end[:num_envs])
    batch = steps.buffer.sample(1000, n_step, 0.5, np.random.default_rng(0))
    assert batch[0].dtype == batch[3].dtype == torch.uint8
    assert {x.dtype for x in (batch[1], batch[2], *batch[4:])} == {torch.float32}
    expected = steps.expected(n_step, 0.5)
    for obs, action, reward, next_obs, terminated, discount in zip(*batch, strict=True):
        its_obs, its_reward, its_next_obs, its_terminated, its_discount = expected[int(action)]
        assert np.array_equal(obs[:, 0], its_obs)
        assert np.array_equal(next_obs[:, 0], its_next_obs)
        assert (reward.item(), discount.item()) == (its_reward, its_discount)
        assert terminated.item() == its_terminated
    assert {int(action) for action in batch[1]} == set(expected)


@pytest.mark.parametrize("more", [0, 7, 60])  # steps: nothing new, some rows, all rows anew
def test_a_buffer_restored_from_its_files_gives_the_same_batches_then_and_later(more, tmp_path):
    rng, files = np.random.default_rng(0), ReplayFiles(tmp_path)
    one = Steps(50, STACK, 2, repeat_first=True)
    two = Steps(50, STACK, 2, repeat_first=True)

    def play(which, count):
        for _ in range(count):
            ends = rng.choice(["", "", "", "", "terminated", "truncated"], 2)
            for steps in which:
                steps.add(ends)

    play([one], 33)
    files.save(one.buffer)
    play([one], more)
    ReplayFiles(tmp_path).load(two.buffer, files.save(one.buffer))
    two.steps, two.stacks = one.steps.copy(), one.stacks.copy()
    for _ in range(20):
        play([one, two], 1)
        ours, theirs = (x.buffer.sample(50, 3, 0.9, np.random.default_rng(1)) for x in (one, two))
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)


STACKED = ["ZeroPadded-v0", "ResetPadded-v0", "Colours-v0", "TwoChannels-v0"]


@pytest.mark.parametrize("env_id", STACKED)
def test_replay_gives_back_what_the_environments_showed(env_id):
    args, rng = make_args("--env-id", env_id), np.random.default_rng(0)
    envs = make_envs(args, 2, seed=3)
    obs_shape, action_dim, frame_stack = check_pixels(envs, args)
    assert frame_stack == STACK
    buffer = ReplayBuffer(1000, obs_shape, action_dim, frame_stack)
    seen = {}
    obs, _ = envs.reset()
    for _ in range(100):
        action = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        seen |= {a.tobytes(): pair for a, *pair in zip(action, obs, next_obs, strict=True)}
        ended = terminated | truncated
        obs = envs.reset(options={"reset_mask": ended})[0] if ended.any() else next_obs
    drawn = set()
    for obs, action, _, next_obs, *_ in zip(*buffer.sample(3000, 1, 0.99, rng), strict=True):
        drawn.add(action.numpy().tobytes())
        pair = [x.flatten(0, 1).numpy() for x in (obs, next_obs)]
        assert np.array_equal(pair, seen[action.numpy().tobytes()])
    assert drawn == set(seen)


def test_steps_are_drawn_uniformly():
    steps = Steps(120, 2, 2, repeat_first=False)
    for k in range(60):  # the oldest leave; episodes of 1 to 7 steps
        steps.add(["terminated" if k % 7 == 0 else "", "truncated" if k % 5 == 0 else ""])
    drawn = steps.buffer.sample(20_000, 1, 0.99, np.random.default_rng(0))[1].numpy().ravel()
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == len(steps.expected(1, 0.99)) > 50
    assert np.abs(counts * len(counts) / 20_000 - 1).max() < 0.25  # 4.5 standard deviations


@pytest.mark.parametrize(("channels", "gigabytes"), [(1, 0.75), (3, 2.2)])
def test_100_000_steps_take_little_more_than_their_frames(channels, gigabytes):
    buffer = ReplayBuffer(100_000, (3 * channels, 84, 84), 2, 3)
    assert buffer.frame[0].shape == (channels, 84, 84)
    num_bytes = sum(x.nbytes for x in arrays_of(buffer).values())
    assert num_bytes <= gigabytes * 1e9
    assert num_bytes < 1.01 * 100_000 * channels * 84 * 84


# ---- Random shifts ----


def crops(picture, pad):
    """All shifted versions of (C, H, W): (1 + 2 pad) ** 2 of them, as bytes -> (dy, dx)."""
    padded = np.pad(picture, ((0, 0), (pad, pad), (pad, pad)), "edge")
    height, width = picture.shape[1:]
    return {
        padded[:, y : y + height, x : x + width].tobytes(): (y - pad, x - pad)
        for y in range(1 + 2 * pad)
        for x in range(1 + 2 * pad)
    }


@pytest.mark.parametrize("pad", [1, 4])
def test_shifts_are_uniform_and_alike_for_all_frames_of_a_stack(pad):
    torch.manual_seed(0)
    n = 100 * (1 + 2 * pad) ** 2
    picture = np.random.default_rng(0).integers(0, 256, (3, 12, 15), np.uint8)
    known = crops(picture, pad)
    assert len(known) == n // 100
    obs = torch.from_numpy(picture)[:, None].repeat(n, 1, 1, 1, 1)
    counts = dict.fromkeys(known.values(), 0)
    for shifted in random_shift(obs, pad).numpy():
        counts[known[shifted.astype(np.uint8).tobytes()]] += 1  # KeyError: no common shift
    assert np.abs(np.array(list(counts.values())) - 100).max() < 45  # 4.5 standard deviations


def shifts_seen(args, obs):
    """The shifts with which the encoder sees the current and the next pictures of an update."""
    _, action, reward, _, terminated, discount = make_batch(len(obs))
    agent, inputs = make_agent(args), []
    agent.critics.encoder.register_forward_pre_hook(lambda module, x: inputs.append(x[0]))
    update(agent, with_sgd(agent), (obs, action, reward, obs, terminated, discount), args)
    return [
        [
            crops(picture, args.shift_pad)[shifted.numpy().astype(np.uint8).tobytes()]
            for picture, shifted in zip(obs.flatten(1, 2).numpy(), pictures, strict=True)
        ]
        for pictures in inputs
    ]


def test_current_and_next_pictures_are_shifted_separately():
    current, following = shifts_seen(make_args("--shift-pad", "2"), make_batch(40)[0])
    equal = np.mean([a == b for a, b in zip(current, following, strict=True)])
    assert equal < 0.3  # one in 25 by chance
    assert len(set(current)) > 10  # and every sample by itself


def test_without_shifts_the_encoder_sees_the_pictures_themselves():
    current, following = shifts_seen(make_args("--shift-pad", "0"), make_batch(5)[0])
    assert current == following == [(0, 0)] * 5


# ---- Pictures of all kinds ----


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 84, 84), (3, 84, 84)),
        ((84, 64, 3), (3, 84, 64)),
        ((84, 64), (1, 84, 64)),
        ((4, 84, 64), (4, 84, 64)),
        ((4, 84, 64, 3), (12, 84, 64)),
        ((4, 3, 84, 64), (12, 84, 64)),
    ],
)
def test_pictures_are_brought_to_channels_height_width(shape, expected):
    env = Pictures(Noise(shape))
    assert env.observation_space == Box(0, 255, expected, np.uint8)
    assert env.reset()[0].shape == env.step(np.zeros(2))[0].shape == expected
    assert env.frame_stack == 1  # none that is known


def test_newest_frame_stays_last_with_channels_last():
    env = Pictures(stacked("reset", (36, 40, 3)))
    assert env.frame_stack == STACK
    env.reset(seed=0)
    obs = env.step(np.zeros(2))[0]
    frames = env.get_wrapper_attr("obs_queue")  # of FrameStackObservation
    assert np.array_equal(obs[-3:], frames[-1].transpose(2, 0, 1))
    assert np.array_equal(obs[:3], frames[0].transpose(2, 0, 1))


def test_a_stack_of_which_something_else_was_made_counts_as_one_frame():
    env = FrameStackObservation(Noise(), STACK)
    one = Box(0, 255, (36, 40), np.uint8)
    assert Pictures(TransformObservation(env, lambda obs: obs.max(axis=0), one)).frame_stack == 1


@pytest.mark.parametrize("env_id", ["NoiseFirst-v0", "NoiseLast-v0", "NoiseGrey-v0"])
def test_any_environment_with_pictures_trains(env_id, tmp_path):
    folder = train("conv_sac", tiny("conv_sac", env=HERE + env_id, total=30), tmp_path)
    assert int(progress(folder)[-1]["num_updates"]) > 0


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_run_of_stacks_that_is_cut_and_resumed_is_the_whole_run(num_envs, tmp_path):
    argv = ["--num-envs", num_envs]
    whole, cut = (
        train(
            "conv_sac",
            tiny("conv_sac", *argv, env=HERE + "ZeroPadded-v0", total=total),
            tmp_path,
            name,
        )
        for name, total in (("whole", 100), ("cut", 50))
    )
    ended = run("conv_sac", ["--resume", cut, "--total-steps", 100], tmp_path)
    assert ended.code == 0, ended.err
    assert progress(whole) == progress(cut)
    for name in ("agent", "optimizers", "rng"):
        assert differences(checkpoint(whole)[name], checkpoint(cut)[name]) == []


# ---- What is refused ----


@pytest.mark.parametrize(
    ("env_id", "more", "words"),
    [
        ("toy_envs:Toy-v0", [], "try sac.py"),
        (HERE + "ZeroPadded-v0", ["--buffer-size", 7, "--num-envs", 2], "at least 8 are needed"),
    ],
)
def test_what_it_cannot_learn_from_is_refused_in_one_line(env_id, more, words, tmp_path):
    ended = run("conv_sac", tiny("conv_sac", *more, env=env_id), tmp_path)
    assert ended.code == 2
    assert words in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
    assert not (tmp_path / "runs").exists()


def test_frames_that_are_no_stack_are_refused_in_one_line(tmp_path):
    ended = run("conv_sac", tiny("conv_sac", env=HERE + "NoStack-v0"), tmp_path)
    assert ended.code == 2
    assert "NoStack-v0: observations are not stacks of frames; put" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


def test_the_smallest_memory_that_is_not_refused_is_large_enough(tmp_path):
    argv = ["--buffer-size", 8, "--num-envs", 2, "--learning-starts", 1]
    folder = train("conv_sac", tiny("conv_sac", *argv, env=HERE + "ZeroPadded-v0"), tmp_path)
    assert int(progress(folder)[-1]["num_updates"]) > 0
