"""Draws the diagrams of the documentation as SVG files:  python docs/diagrams.py

Architecture of each algorithm, the map of the family, partial observability on the pendulum, how
memory and replay go together, and curves of benchmark/results. The same code and the same
Matplotlib give the same bytes, and a test compares them with what is committed.
"""

import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmark import read_curve

STATIC = Path(__file__).parent / "_static"

# Colours that differ in lightness too, for black and white prints (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, RED = "#56b4e9", "#e69f00", "#009e73", "#d55e00"
PALE, GREY, BLACK = "#eeeeee", "#999999", "#222222"
LIGHT = {BLUE: "#d6ecf9", ORANGE: "#fbe5b8", GREEN: "#c5ebdf", RED: "#f7d7c4", PALE: PALE}

STYLE = {
    "svg.hashsalt": "diagrams",  # the same ids, hence the same bytes, on every run
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": BLACK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}


# ---- Pieces ----


def canvas(width, height):
    """A figure whose units are inches, without axes."""
    figure, ax = plt.subplots(figsize=(width, height))
    figure.subplots_adjust(0, 0, 1, 1)
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    return figure, ax


def box(ax, x, y, text, color=PALE, width=1.3, height=0.62, dashed=False, size=9):
    """A rounded box around (x, y); dashed: no gradient flows into its weights."""
    ax.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=LIGHT.get(color, color),
            edgecolor=GREY if color == PALE else color,
            linewidth=1.4,
            linestyle="--" if dashed else "-",
        )
    )
    ax.text(x, y, text, ha="center", va="center", size=size, linespacing=1.25)


def arrow(ax, start, end, color=BLACK, dashed=False, curve=0.0):
    ax.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": color,
            "linewidth": 1.2,
            "linestyle": "--" if dashed else "-",
            "shrinkA": 0,
            "shrinkB": 0,
            "connectionstyle": f"arc3,rad={curve}",
        },
    )


def label(ax, x, y, text, size=9, color=BLACK, ha="left", **kwargs):
    ax.text(x, y, text, size=size, color=color, ha=ha, va="center", **kwargs)


def cells(ax, x, y, colors, texts=None, size=0.36, edge=GREY):
    """A strip of time steps from left to right, starting at (x, y)."""
    for i, color in enumerate(colors):
        ax.add_patch(
            Rectangle((x + i * size, y), size, size, facecolor=color, edgecolor=edge, linewidth=0.8)
        )
        if texts:
            center = x + (i + 0.5) * size, y + size / 2
            ax.text(*center, texts[i], ha="center", va="center", size=7.5)


# ---- Architectures ----

# For each script: what stands before the actor, what the actor is, the critics, and so on.
ARCHITECTURES = {
    "ddpg": {},
    "td3": {"critics": 2, "noise": True},
    "sac": {"critics": 2, "entropy": True},
    "rdpg": {"memory": "separate"},
    "rtd3": {"memory": "separate", "critics": 2, "noise": True},
    "rsac": {"memory": "separate", "critics": 2, "entropy": True},
    "rsac_sharing": {"memory": "shared", "critics": 2, "entropy": True},
    "conv_sac": {"memory": "encoder", "critics": 2, "entropy": True},
}


def architecture(critics=1, noise=False, entropy=False, memory=None):
    """Three rows: the actor's update, the critics' update, and the target they learn."""
    names = "qf1, qf2" if critics == 2 else "qf1"
    first = {
        None: ("obs $o_t$", "obs $o_t$", "next obs $o_{t+1}$"),
        "encoder": ("frames $o_t$", "frames $o_t$", "frames $o_{t+1}$"),
    }.get(memory, ("history to $o_t$", "history to $o_t$", "history to $o_{t+1}$"))
    front = {
        None: (None, None, None),
        "separate": ("actor.rnn", "critics.rnn", "actor.rnn" if entropy else "actor_target.rnn"),
        "shared": ("critics.rnn", "critics.rnn", "critics_target.rnn"),
        "encoder": ("encoder", "encoder", "encoder"),
    }[memory]
    trains_front = (memory == "separate", True, False)

    figure, ax = canvas(9.6, 4.5)
    columns = (0.95, 2.55, 4.25, 6.3, 8.4)
    rows = (3.45, 2.1, 0.75)
    titles = ("actor update", "critic update", "target, no gradient")
    for y, title, start in zip(rows, titles, first, strict=True):
        label(ax, 0.1, y + 0.62, title, size=9, color=GREY, weight="bold")
        box(ax, columns[0], y, start, width=1.5)
    for y, name, trained in zip(rows, front, trains_front, strict=True):
        if name:
            color = GREEN if memory == "encoder" else ORANGE
            box(ax, columns[1], y, name, color, width=1.5, dashed=not trained)
            arrow(ax, (columns[0] + 0.75, y), (columns[1] - 0.73, y))
    before = columns[1] + 0.73 if memory else columns[0] + 0.75

    def read_by_critics(y, own=False):
        """What the critics judge from, past the actor; own: their memory or encoder is inside."""
        start = (columns[0] + 0.6, y + 0.31) if own else (before, y + 0.18)
        curve = -0.2 if start[0] < columns[1] else -0.28
        arrow(ax, start, (columns[3] - 0.65, y + 0.18), curve=curve)

    # The actor's update: the critics only judge.
    y = rows[0]
    box(ax, columns[2], y, "actor", BLUE)
    arrow(ax, (before, y), (columns[2] - 0.65, y))
    judge = names if entropy else "qf1"
    judge += "\n(own memory)" if memory == "separate" else ""
    box(ax, columns[3], y, judge, BLUE, dashed=True)
    read_by_critics(y, own=memory == "separate")
    arrow(ax, (columns[2] + 0.65, y), (columns[3] - 0.65, y))
    action = "new_action,\nlog_prob" if entropy else "action"
    label(ax, (columns[2] + columns[3]) / 2, y - 0.23, action, size=7.5, ha="center")
    q = "mean q" if memory in ("separate", "shared") else "min q"
    loss = "actor_loss\n" + (f"$\\alpha$ log_prob - {q}" if entropy else "- q1")
    box(ax, columns[4], y, loss, RED, width=1.9)
    arrow(ax, (columns[3] + 0.65, y), (columns[4] - 0.95, y))

    # The critics' update on what was done.
    y = rows[1]
    box(ax, columns[2], y, "action $a_t$", width=1.3)
    box(ax, columns[3], y, names, BLUE)
    arrow(ax, (columns[2] + 0.65, y), (columns[3] - 0.65, y))
    read_by_critics(y)
    box(ax, columns[4], y, "qf_loss\n" + ("½ (q - y)²" if entropy else "(q - y)²"), RED, width=1.9)
    arrow(ax, (columns[3] + 0.65, y), (columns[4] - 0.95, y))

    # The target.
    y = rows[2]
    actor = "actor" if entropy else "actor_target"
    box(ax, columns[2], y, actor + ("\n+ clipped noise" if noise else ""), BLUE, dashed=True)
    arrow(ax, (before, y), (columns[2] - 0.65, y))
    own = {"separate": "memory", "encoder": "encoder"}.get(memory)
    target = f"critics_target\n(own {own})" if own else "critics_target"
    box(ax, columns[3], y, target, BLUE, dashed=True)
    read_by_critics(y, own=own is not None)
    arrow(ax, (columns[2] + 0.65, y), (columns[3] - 0.65, y))
    value = "min" if critics == 2 else "value"
    bonus = " - $\\alpha$ log_prob" if entropy else ""
    box(ax, columns[4], y, f"y = td_target\n{value}{bonus}", PALE, width=1.9)
    arrow(ax, (columns[3] + 0.65, y), (columns[4] - 0.95, y))
    arrow(ax, (columns[4], y + 0.31), (columns[4], rows[1] - 0.31))
    label(
        ax,
        9.5,
        0.15,
        "solid: trained by this row's loss   dashed: used, not trained",
        8,
        GREY,
        "right",
    )
    return figure


def family():
    """Which script extends which, and by what."""
    figure, ax = canvas(9.6, 4.3)
    spots = {
        "ddpg": (1.2, 3.5, BLUE),
        "td3": (4.4, 3.5, BLUE),
        "sac": (7.6, 3.5, BLUE),
        "rdpg": (1.2, 1.9, ORANGE),
        "rtd3": (4.4, 1.9, ORANGE),
        "rsac": (7.6, 1.9, ORANGE),
        "rsac_sharing": (7.6, 0.5, ORANGE),
        "conv_sac": (4.4, 0.5, GREEN),
    }
    for script, (x, y, color) in spots.items():
        box(ax, x, y, f"{script}.py", color, width=1.7, size=10)
    for old, new, text in (
        ("ddpg", "td3", "two critics,\nlate actor,\nsmoothed target"),
        ("td3", "sac", "stochastic actor,\nentropy,\nalpha"),
    ):
        (x0, y, _), (x1, _, _) = spots[old], spots[new]
        arrow(ax, (x0 + 0.85, y), (x1 - 0.85, y))
        label(ax, (x0 + x1) / 2, y + 0.42, text, 8, ha="center")
    for old, new in (("ddpg", "rdpg"), ("td3", "rtd3"), ("sac", "rsac")):
        (x, y0, _), (_, y1, _) = spots[old], spots[new]
        arrow(ax, (x, y0 - 0.31), (x, y1 + 0.31))
        label(ax, x + 0.1, (y0 + y1) / 2, "memory,\nsequences of episodes", 8)
    arrow(ax, (7.6, 1.59), (7.6, 0.81))
    label(ax, 7.7, 1.2, "one memory for\nactor and critics", 8)
    arrow(ax, (6.75, 3.3), (5.0, 0.83), curve=0.1)
    label(ax, 5.85, 1.15, "encoder of pictures,\nrandom shifts", 8, ha="left")
    return figure


# ---- Partial observability on the pendulum ----


def pendulum_episode(steps=40, start=(2.4, 0.8)):
    """Angle, angular velocity and torque of a free swing with a few pushes (Pendulum-v1)."""
    th, thdot = start
    rows = []
    for t in range(steps):
        u = 1.5 * math.sin(0.45 * t)
        rows.append((th, thdot, u))
        thdot = float(np.clip(thdot + (15 * math.sin(th) + 3 * u) * 0.05, -8, 8))
        th = th + thdot * 0.05
    return np.array(rows).T


def rod(ax, x, y, th, color=RED, length=0.75, alpha=1.0):
    tip = x - length * math.sin(th), y + length * math.cos(th)
    ax.plot([x, tip[0]], [y, tip[1]], color=color, linewidth=7, solid_capstyle="round", alpha=alpha)
    ax.plot([x], [y], "o", color=BLACK, markersize=5)
    return tip


def one_frame():
    """The same picture, three states, three different right actions."""
    figure, ax = canvas(8.4, 2.9)
    for i, (text, sign) in enumerate((("moving left", 1), ("at rest", 0), ("moving right", -1))):
        x = 1.5 + 2.7 * i
        tip = rod(ax, x, 1.1, 0.35)
        if sign:
            turn = -0.55 * sign
            arrow(ax, tip, (tip[0] + turn, tip[1] - 0.18 * sign + 0.02), color=BLUE)
        label(ax, x, 0.6, text, 10, ha="center", weight="bold")
        label(ax, x, 0.3, "cos, sin = 0.94, 0.34", 9, ha="center", color=GREY)
    label(
        ax, 4.2, 2.65, "What the agent sees is the same, what it should do is not", 10, ha="center"
    )
    return figure


def two_frames():
    """The difference of two frames is the velocity (pendulum-p)."""
    th, thdot, _ = pendulum_episode()
    estimate = np.full_like(th, np.nan)
    sine = np.sin(th[1:] - th[:-1])  # from cos and sin of both frames alone
    estimate[1:] = np.arcsin(np.clip(sine, -1, 1)) / 0.05
    figure, axes = plt.subplots(2, 1, figsize=(7.6, 4.8), sharex=True, layout="constrained")
    axes[0].plot(np.cos(th), color=BLUE, label="cos (seen)")
    axes[0].plot(np.sin(th), color=ORANGE, linestyle="--", label="sin (seen)")
    axes[1].plot(thdot, color=BLACK, label="angular velocity (hidden)")
    axes[1].plot(estimate, ".", color=RED, label="from the last two observations")
    axes[1].set(xlabel="step", ylabel="rad/s")
    for ax in axes:
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9)
    return figure


def from_acceleration():
    """Velocity and torque give the sine of the angle, one step late (pendulum-va)."""
    th, thdot, u = pendulum_episode()
    sine = (np.diff(thdot) / 0.05 - 3 * u[:-1]) / 15
    figure, axes = plt.subplots(2, 1, figsize=(7.6, 4.8), sharex=True, layout="constrained")
    axes[0].plot(thdot, color=BLUE, label="angular velocity [rad/s] (seen)")
    axes[0].plot(u, color=ORANGE, linestyle="--", label="torque [N m] (seen one step later)")
    axes[1].plot(np.sin(th), color=BLACK, label="sin of the angle (hidden)")
    axes[1].plot(sine, ".", color=RED, label="from two velocities and the torque between")
    axes[1].set(xlabel="step")
    for ax in axes:
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9)
    return figure


def history():
    """What an agent with memory reads at each step, and what it carries."""
    figure, ax = canvas(8.4, 2.7)
    for t in range(4):
        x = 1.3 + 2.0 * t
        box(ax, x, 1.55, "memory", ORANGE, width=1.1, height=0.55)
        label(ax, x, 0.6, f"$o_{t}$, $a_{t - 1}$" if t else "$o_0$, 0", 10, ha="center")
        arrow(ax, (x, 0.8), (x, 1.27))
        label(ax, x, 2.45, f"$a_{t}$", 10, ha="center")
        arrow(ax, (x, 1.83), (x, 2.3))
        if t < 3:
            arrow(ax, (x + 0.55, 1.55), (x + 1.45, 1.55))
            label(ax, x + 1.0, 1.75, "hidden", 9, ha="center")
    label(ax, 0.35, 1.55, "0", 9, ha="center")
    arrow(ax, (0.45, 1.55), (0.75, 1.55))
    label(
        ax,
        4.2,
        0.2,
        "the hidden state sums up the history: all that was seen and done so far",
        9,
        ha="center",
    )
    return figure


# ---- Memory in replay ----

PAD, SEEN, USED = "#ffffff", LIGHT[ORANGE], LIGHT[BLUE]


def sequences():
    """Episodes, and the batch that is cut out of them."""
    figure, ax = canvas(8.4, 3.9)
    label(ax, 0.1, 3.65, "episodes in replay", 10, weight="bold")
    size, K, T = 0.3, 8, 5
    drawn = ((16, 4), (9, 6), (17, 11))  # length of each episode, first step of the window in it
    for i, (length, first) in enumerate(drawn):
        context, learned = min(K, first), min(T, length - first)
        used = [SEEN] * context + [USED] * learned
        episode = [PAD] * (first - context) + used + [PAD] * (length - first - learned)
        cells(ax, 0.3, 3.05 - 0.42 * i, episode, size=size)
        batch = used + [PALE] * (K + T - len(used))
        cells(ax, 0.3, 1.15 - 0.42 * i, batch, size=size)
    label(ax, 5.7, 2.8, "each window begins at\na time of its own", 9)
    label(ax, 0.1, 1.75, "the batch", 10, weight="bold")
    label(ax, 4.5, 0.9, "orange: context, at most K steps\nblue: the T steps with a loss", 9)
    label(ax, 4.5, 0.4, "grey: padding, zeros", 9)
    return figure


def target_memory():
    """Features of T + 1 steps from the online and the target memory."""
    figure, ax = canvas(8.4, 2.5)
    texts = [f"$z_{t}$" for t in range(7)]
    label(ax, 0.1, 1.75, "online memory", 9.5)
    cells(ax, 2.0, 1.55, [USED] * 6 + [PALE], texts, size=0.42)
    label(ax, 5.2, 1.75, "steps 0 .. T-1: q1, q2", 9)
    label(ax, 0.1, 0.95, "target memory", 9.5)
    cells(ax, 2.0, 0.75, [PALE] + [SEEN] * 6, texts, size=0.42)
    label(ax, 5.2, 0.95, "steps 1 .. T: next_q, in the target y", 9)
    return figure


def memory_network():
    """What the memory reads, and what the networks behind it read."""
    figure, ax = canvas(8.4, 3.5)
    for y, text, note in (
        (2.7, "observation $o_t$", "obs"),
        (1.8, "action $a_{t-1}$", "obs-action"),
        (0.9, "reward $r_{t-1}$", "obs-action-reward"),
    ):
        box(ax, 1.2, y, text, width=1.9, height=0.5)
        arrow(ax, (2.15, y), (2.75, 1.8 + (y - 1.8) * 0.25), dashed=y < 2)
        label(ax, 0.3, y - 0.37, f"--memory-input {note}", 7.5, GREY)
    box(ax, 3.4, 1.8, "divided by\nobs_scale", width=1.3, height=0.9)
    box(ax, 5.2, 1.8, "LSTM", ORANGE, width=1.4, height=0.9)
    box(ax, 7.3, 1.8, "MLP with\nLayerNorm", BLUE, width=1.2, height=0.9)
    arrow(ax, (4.05, 1.8), (4.5, 1.8))
    arrow(ax, (5.9, 1.8), (6.7, 1.8))
    label(ax, 6.3, 2.0, "feat", 8, ha="center")
    arrow(ax, (3.4, 2.25), (7.1, 2.25), curve=-0.25)
    label(ax, 5.25, 2.95, "the inputs of this step are a part of feat", 8, GREY, "center")
    arrow(ax, (7.3, 1.35), (7.3, 0.85))
    label(ax, 7.3, 0.65, "action or value", 9, ha="center")
    return figure


def units():
    """A gate on inputs in rad/s and on the same inputs as parts of the largest, 8 rad/s."""
    figure, ax = plt.subplots(figsize=(7.6, 2.9), layout="constrained")
    x = np.linspace(-8, 8, 161)
    ax.plot(x, 1 / (1 + np.exp(-x)), color=GREY)
    for values, color, marker, text in (
        (np.array([2, 4, 6, 8]), RED, "o", "2, 4, 6, 8 rad/s as they are"),
        (np.array([2, 4, 6, 8]) / 8, BLUE, "s", "the same, each divided by 8"),
    ):
        ax.plot(values, 1 / (1 + np.exp(-values)), marker, color=color, label=text)
    ax.set(xlabel="input times weight, weight 1", ylabel="gate")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9)
    return figure


def owners():
    """One memory for the actor and one for both critics, or one for all."""
    figure, ax = canvas(6.4, 2.7)
    label(ax, 1.6, 2.5, "rsac.py", 9.5, ha="center", weight="bold")
    label(ax, 4.7, 2.5, "rsac_sharing.py", 9.5, ha="center", weight="bold")
    heads = ("actor", "qf1", "qf2")
    for x, places, sources in ((1.6, (0.0, 1.28), (0, 1, 1)), (4.7, (0.85,), (0, 0, 0))):
        for place in places:
            box(ax, x - 0.85 + place, 0.6, "rnn", ORANGE, width=0.7, height=0.5)
        for i, (head, k) in enumerate(zip(heads, sources, strict=True)):
            box(ax, x - 0.85 + 0.85 * i, 1.8, head, BLUE, width=0.7, height=0.5)
            detached = len(places) == 1 and head == "actor"
            start = (x - 0.85 + places[k], 0.85)
            arrow(ax, start, (x - 0.85 + 0.85 * i, 1.55), dashed=detached)
    label(ax, 4.7, 0.15, "dashed: no gradient", 8, GREY, "center")
    return figure


def resume():
    """A run that is killed and resumed has the curve of one that was not."""
    figure, ax = canvas(8.4, 2.5)
    for y, text in ((1.8, "one go"), (0.8, "killed, resumed")):
        label(ax, 0.1, y, text, 9.5)
        ax.plot([1.8, 8.0], [y, y], color=GREY, linewidth=1)
    for x in (3.2, 4.6, 6.0, 7.4):
        for y in (1.8, 0.8):
            ax.plot([x], [y], "s", color=BLUE, markersize=8)
    ax.plot([5.5], [0.8], "x", color=RED, markersize=11, markeredgewidth=2.5)
    label(ax, 5.5, 0.5, "kill -9", 9, RED, "center")
    arrow(ax, (5.4, 1.02), (4.65, 1.02), color=RED, curve=0.3)
    label(
        ax,
        1.8,
        2.2,
        "blue: checkpoint (networks, optimizers, generators, replay buffer, arguments)",
        8.5,
    )
    label(
        ax,
        1.8,
        0.2,
        "steps after the last checkpoint are made again, the same to the last bit",
        8.5,
        GREY,
    )
    return figure


# ---- Learning curves ----

RESULTS = Path(__file__).parents[1] / "benchmark" / "results"
CURVES = RESULTS / "bugs"
BUGS = {path.stem.split("-bug-")[1].split("__")[0] for path in CURVES.glob("*-bug-*.csv")}


def curves(env_id, name):
    """Of a script of the scoreboard or of a variant in memory.txt."""
    return sorted(RESULTS.glob(f"[cm]*/{env_id}__{name}__*.csv"))


def chosen(names):
    """The tasks that all these scripts were run on, with three seeds at least."""
    return [x for x in CHOSEN if all(len(curves(x, name)) >= 3 for name in names)]


def choice(names):
    """Evaluation returns of two scripts, {script: text}, from the first update on: thin lines for
    the seeds, a thick one for their mean, and a panel for each task that was run, from
    results/memory and, for scripts of the scoreboard, results/curves.
    """
    colors = dict(zip(names, (BLUE, RED), strict=True))
    tasks = chosen(names)
    columns = min(3, len(tasks))  # more would be too small to read on a page
    rows = -(-len(tasks) // columns)
    size = (0.3 + 3.4 * columns, 0.3 + 2.1 * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for ax in grid.flat[len(tasks) :]:
        ax.remove()
    for ax, env_id in zip(grid.flat, tasks, strict=False):
        last = min(read_curve(p)["global_step"][-1] for name in names for p in curves(env_id, name))
        for name, color in colors.items():
            returns = []
            for path in curves(env_id, name):
                curve = read_curve(path)
                steps = curve["global_step"]
                shown = (steps > LEARNING_STARTS) & (steps <= last)
                returns.append(curve["eval_return_mean"][shown])
                ax.plot(steps[shown], returns[-1], color=color, lw=0.6, alpha=0.6)
            ax.plot(steps[shown], np.mean(returns, axis=0), color=color, lw=2)
        ax.set_title(env_id, size=9, loc="left")
        ax.set_xlabel("env steps", size=9)
        ax.locator_params(axis="x", nbins=4)
        ax.tick_params(labelsize=8)
    for ax in grid[:, 0]:
        ax.set_ylabel("evaluation return", size=9)
    handles = [plt.Line2D([], [], color=colors[name], label=names[name]) for name in names]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(names), fontsize=8, frameon=False
    )
    return figure


LEARNING_STARTS = 5000  # [env steps], as in the scripts
CHOSEN = (
    "pendulum-va-v0",
    "dmc-cartpole-swingup-va-v0",
    "reacher-pomdp-v0",
    "water-maze-simple-pomdp-v0",
    "bumps-normal-test-v0",
    "car-p-v0",
)
RSAC, SHARING = {"rsac": "rsac.py"}, {"rsac_sharing": "rsac_sharing.py"}
CHOICES = {
    "start_times": RSAC | {"rsac-aligned": "all sequences at one time"},
    "gradient": RSAC | {"rsac-bug-no-gradient": "no gradient through the context"},
    "layernorm": RSAC | {"rsac-no-layernorm": "no LayerNorm"},
    "reward": RSAC | {"rsac-reward": "the memory also reads rewards"},
    "average": RSAC | {"rsac-newest": "the newest policy, not the average"},
    "owners": RSAC | SHARING,
    "critics": {"rtd3": "rtd3.py", "rtd3-mean-critic": "mean of both critics in the target"},
    "time_limits": {"rdpg": "rdpg.py", "rdpg-time-limits": "0 as the value beyond the limit"},
    "losses": SHARING | {"rsac_sharing-both-losses": "both losses train the memory"},
}


def bug(name):
    """Evaluation returns of rsac.py with a bug and without, one panel for each task."""
    paths = sorted(CURVES.glob(f"*__rsac-bug-{name}__*.csv"))
    figure, row = plt.subplots(
        1, len(paths), figsize=(0.3 + 3.4 * len(paths), 2.2), layout="constrained", squeeze=False
    )
    for ax, path in zip(row[0], paths, strict=True):
        good = read_curve(path.with_name(path.name.replace(f"-bug-{name}", "")))
        bad = read_curve(path)
        ax.plot(good["global_step"], good["eval_return_mean"], "--", color=GREY, label="without")
        ax.plot(bad["global_step"], bad["eval_return_mean"], color=RED, label="with the bug")
        task = path.name.split("__")[0].removeprefix("probes_")
        ax.set_title(task, size=9, loc="left")
        ax.set_xlabel("env steps", size=9)
        ax.tick_params(labelsize=8)
    row[0, 0].set_ylabel("evaluation return", size=9)
    row[0, 0].legend(fontsize=8, frameon=False)
    return figure


# ---- All of them ----

FIGURES = {
    "family": family,
    **{
        f"arch_{name}": lambda parts=parts: architecture(**parts)
        for name, parts in ARCHITECTURES.items()
    },
    "pendulum_one_frame": one_frame,
    "pendulum_two_frames": two_frames,
    "pendulum_acceleration": from_acceleration,
    "history": history,
    "replay_sequences": sequences,
    "replay_target_memory": target_memory,
    "memory_network": memory_network,
    "memory_units": units,
    "memory_owners": owners,
    "resume": resume,
    **{
        f"choice_{name}": lambda names=names: choice(names)
        for name, names in CHOICES.items()
        if chosen(names)
    },
    **{f"bug_{name}": lambda name=name: bug(name) for name in sorted(BUGS)},
}


def draw_all(folder=STATIC):
    """Writes every diagram as <name>.svg and returns the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            figure = draw()
            path = folder / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None})
            plt.close(figure)
            paths.append(path)
    return paths


if __name__ == "__main__":
    for written in draw_all(*sys.argv[1:2]):
        print(written)
