"""The live page in a real browser: its environments and network are Python's, its controls work."""

import json

import numpy as np
import pytest
import torch
from chromium import open_page
from docs_site import DOCS
from script_runs import ROOT, tiny, train

from benchmark import open_run, poke
from common.envs import make_env

pytestmark = pytest.mark.timeout(900)
SCRIPT = DOCS / "_static" / "poke.js"
SHIPPED = ROOT / "policies" / "pendulum-p-v0__rsac.pt"
PUSH = 1.5
# Whole episodes. An arm that spins is chaotic: rounding grows by about 1000 in 100 steps.
STEPS = {"pendulum-p-v0": 200, "reacher-pomdp-v0": 50}
# A push of the pendulum, or another place of the target, after half of the steps.
DISTURB = {
    "pendulum-p-v0": f"env.push({PUSH})",
    "reacher-pomdp-v0": "env.touch(-0.1, 0.05)",
}


def export(run, out):
    """The policy as the page has it, with few of the mean returns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poke, "FRAMES", (3, 1))
        poke.main(poke.parse_args([str(run), "--out", str(out), "--episodes", "2"]))
    return json.loads(out.read_text())


@pytest.fixture(scope="module", params=DISTURB)
def policy(request, tmp_path_factory):
    """(environment id, run folder, exported policy) of a small network after a few updates."""
    folder = tmp_path_factory.mktemp("poke")
    more = ["--learning-starts", 210, "--sequence-length", 20, "--lr", 0.01]
    run = train("rsac", tiny("rsac", *more, total=260, env=request.param), folder)
    return request.param, run, export(run, folder / "policy.json")


def start_of(env):
    """The state that an environment of the page starts from."""
    inner = env.unwrapped
    if hasattr(inner, "data"):
        return [*inner.data.qpos[:2], *inner.data.qvel[:2], *inner.data.qpos[2:]]
    return inner.state.tolist()


def in_python(env_id, run, frames):
    """(start state, [observations, actions, hidden states (h, then c)]) of an episode."""
    agent, _ = open_run(run)
    env = make_env(env_id, memory_input="obs-action")
    obs, _ = env.reset(seed=3)
    inner, start = env.unwrapped, start_of(env)
    steps, seen, hidden, action = [], [], None, None
    for k in range(STEPS[env_id]):
        if k == STEPS[env_id] // 2 and env_id == "pendulum-p-v0":
            inner.state[1] = np.clip(inner.state[1] + PUSH, -8, 8)
        elif k == STEPS[env_id] // 2:
            inner.data.qpos[2:] = -0.1, 0.05
        if action is not None:
            obs, *_ = env.step(action[0])
        seen = [*seen, obs[None]][-frames:]
        if frames:
            hidden = None
            for past in seen[:-1]:
                _, hidden = agent.act(past, hidden, deterministic=True)
        action, hidden = agent.act(obs[None], hidden, deterministic=True)
        steps.append((obs, action[0], torch.cat(hidden).flatten().numpy().copy()))
    env.close()
    return start, [np.stack(column) for column in zip(*steps, strict=True)]


PLAY = """([data, start, frames, disturb, steps]) => {
  const play = new poke.Play(data, start);
  play.frames = frames;
  const change = new Function("env", disturb);
  for (let k = 1; k < steps; k++) {
    if (k === steps / 2) change(play.env);
    play.tick();
  }
  return play.past.map(({ input, action, h, c }) => [input, action, [...h, ...c]]);
}"""


def compare(browser, env_id, run, data, frames):
    start, expected = in_python(env_id, run, frames)
    page, trouble = open_page(browser)
    page.add_script_tag(path=SCRIPT)
    argument = [data, list(map(float, start)), frames, DISTURB[env_id], STEPS[env_id]]
    steps = page.evaluate(PLAY, argument)
    page.close()
    assert trouble == []
    found = [np.array(column) for column in zip(*steps, strict=True)]
    for name, theirs, ours in zip(("seen", "done", "remembered"), expected, found, strict=True):
        assert theirs.shape == ours.shape
        assert len(theirs) == STEPS[env_id]
        largest = np.maximum(1, np.abs(theirs).max(axis=0))  # joints turn by tens of rad/s
        assert (np.abs(theirs - ours) / largest).max() < 1e-4, name
        assert theirs.std(axis=0).max() > 1e-3, f"nothing moves in what is {name}"


@pytest.mark.parametrize("hold", [1, 10])
@pytest.mark.parametrize("env_id", DISTURB)
def test_200_random_actions_do_in_the_browser_what_they_do_in_python(browser, env_id, hold):
    env, rng = make_env(env_id), np.random.default_rng(hold)
    obs, _ = env.reset(seed=5)
    start, expected, actions, stops = start_of(env), [obs], [], 0
    for k in range(200):
        if k % hold == 0:
            action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        obs, *_ = env.step(action)
        actions.append(action.tolist())
        expected.append(obs)
        stops += env_id == "reacher-pomdp-v0" and abs(env.unwrapped.data.qpos[1]) > 3
    assert stops > 5 or env_id == "pendulum-p-v0", "the elbow never reaches its stop"
    env.close()
    page, _ = open_page(browser)
    page.add_script_tag(path=SCRIPT)
    code = """([id, start, actions]) => {
      const env = new poke.ENVS[id](start);
      return [env.observe(), ...actions.map(action => (env.step(action), env.observe()))];
    }"""
    found = np.array(page.evaluate(code, [env_id, list(map(float, start)), actions]))
    page.close()
    assert np.allclose(found, np.array(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("frames", [0, 3])
def test_an_episode_in_the_browser_is_that_of_python(browser, policy, frames):
    compare(browser, *policy, frames)


def test_a_memory_that_is_told_the_velocity_is_filled_as_in_python(browser, policy):
    env_id, _, data = policy
    if env_id not in poke.SITUATIONS:
        pytest.skip("for the pendulum alone")
    page, _ = open_page(browser)
    page.add_script_tag(path=SCRIPT)
    code = """([data, told]) => {
      const play = new poke.Play(data, [0.5, -3]);
      play.frames = told;
      play.tick();
      play.tick();
      return play.past.at(-1);
    }"""
    t = page.evaluate(code, [data, poke.TOLD])
    page.close()
    obs, truth = np.array([t["input"]]), np.array([t["truth"]])
    assert np.allclose(t["h"], poke.situation(obs, truth) @ np.transpose(data["usual"]))
    inputs = obs / np.array(data["weights"]["obs_scale"])
    feat = np.concatenate([[t["h"]], inputs], axis=1)
    layers = [[torch.tensor(x, dtype=torch.float64) for x in y] for y in data["weights"]["layers"]]
    assert np.allclose(t["action"], poke.act(layers, feat)[0], atol=1e-6)


@pytest.mark.skipif(not SHIPPED.exists(), reason="no trained policy is in this repository")
def test_an_episode_of_the_policy_on_the_page_is_that_of_python(browser):
    data = json.loads((DOCS / "poke" / "pendulum.json").read_text())
    compare(browser, "pendulum-p-v0", SHIPPED, data, 0)


# ---- What the reader can do ----

HTML = """<!doctype html><html><head><meta charset="utf-8"><link rel="stylesheet" href="{css}">
<style>body {{ --color-background-primary: #fff; color: #000; }}
@media (prefers-color-scheme: dark) {{ body {{ --color-background-primary: #111; color: #eee; }} }}
</style></head><body><article class="content"><p><img src="{picture}"></p></article>
<script type="application/json" class="poke-data">{data}</script><script src="{script}"></script>
</body></html>"""


@pytest.fixture
def figure(browser, policy, tmp_path):
    """Opens a page with the small policy; returns (page, trouble)."""
    env_id, _, data = policy
    pictures = ["_static/pendulum_p.gif", "environments/reacher.png"]
    picture = pictures[list(DISTURB).index(env_id)]
    path, pages = tmp_path / "page.html", []
    static = (DOCS / "_static").as_uri()
    text = HTML.format(
        css=f"{static}/docs.css", script=f"{static}/poke.js", data=json.dumps(data),
        picture=(DOCS / picture).as_uri(),
    )  # fmt: skip
    path.write_text(text)

    def opened(**context):
        pages.append(open_page(browser, path, **context))
        return pages[-1]

    yield opened
    for page, trouble in pages:
        page.close()
        assert trouble == []


def count(page):
    return page.evaluate("poke.shown[0].count")


def memory(page):
    return np.array(page.evaluate("poke.shown[0].memory.h"))


def press(page, name):
    page.get_by_role("button", name=name, exact=True).press("Enter")


def colours(page, canvas):
    """How many pixels of a canvas have each colour, as {number: count}."""
    code = """c => {
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      const counts = {};
      for (const x of new Uint32Array(data.buffer)) counts[x] = (counts[x] || 0) + 1;
      return counts;
    }"""
    return page.locator(canvas).evaluate(code)


def test_it_runs_by_itself_20_steps_a_second_until_paused(figure):
    page, _ = figure()
    page.wait_for_function("poke.shown[0].count > 20")
    press(page, "Pause")
    before = count(page)
    page.wait_for_timeout(500)
    assert count(page) == before
    press(page, "Step")
    assert count(page) == before + 1
    assert f"Step {before + 1}," in page.get_by_role("status").inner_text()
    press(page, "Play")
    page.wait_for_function(f"poke.shown[0].count > {before + 5}")


def test_it_stands_still_for_readers_who_asked_for_less_motion(figure):
    page, _ = figure(reduced_motion="reduce")
    page.wait_for_timeout(500)
    assert count(page) == 1
    press(page, "Play")
    page.wait_for_function("poke.shown[0].count > 3")


def test_a_wiped_memory_is_empty_and_reading_again_fills_it(figure):
    page, _ = figure(reduced_motion="reduce")
    for _ in range(5):
        press(page, "Step")
    before = memory(page)
    assert np.abs(before).max() > 1e-3
    press(page, "Wipe its memory")
    assert (memory(page) == 0).all()
    press(page, "Let it read again")
    assert np.allclose(memory(page), before, atol=1e-9)


def test_a_memory_held_wiped_depends_on_the_frame_alone(figure):
    page, _ = figure(reduced_motion="reduce")
    page.get_by_label("At each step its memory holds").select_option("1")
    for _ in range(3):
        press(page, "Step")
    same = page.evaluate(
        "() => { const [{ policy, inputs }] = poke.shown;"
        " return policy.read(inputs.at(-1), policy.empty()).h; }"
    )
    assert np.allclose(memory(page), same, atol=1e-12)


@pytest.mark.parametrize("how", ["key", "click", "touch"])
def test_the_reader_disturbs_what_the_policy_does_not_see(figure, policy, how):
    page, _ = figure(reduced_motion="reduce", has_touch=True)
    before = page.evaluate("poke.shown[0].env.truth")
    if how == "key":
        away = "Target ←" if before[0] > 0 else "Target →"  # from the border, where it stops
        press(page, "Push ↺" if policy[0] == "pendulum-p-v0" else away)
    else:
        scene = page.locator(".poke-scene")
        (scene.click if how == "click" else scene.tap)(position={"x": 20, "y": 60})
    after = page.evaluate("poke.shown[0].env.truth")
    assert after != before  # it is paused: nothing else moves it, and it may have been near


def test_what_is_drawn_follows_a_change_to_dark_also_while_paused(figure):
    page, _ = figure(reduced_motion="reduce", color_scheme="light")
    light = {canvas: colours(page, canvas) for canvas in (".poke-scene", ".poke-plots")}
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(100)
    assert count(page) == 1
    for canvas, before in light.items():
        after = colours(page, canvas)
        assert len(before) > 10
        assert len(after) > 10
        assert after != before
