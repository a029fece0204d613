"""Push-r-bump: a finger that feels only itself must push the right-hand one of two bumps.

The task of arXiv:2110.12628 ("push-r-bump"), rebuilt in pybullet from boxes, cylinders and spheres:
a gripper slides along y, a finger hangs from it on a compliant hinge. A soft finger bends over a
bump and leaves it in place, a stiff one pushes it. Without vision, the agent has to pass over the
bumps softly, remember what it felt and where, and only then push.
"""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import EzPickle

from common.errors import UserError
from envs.bullet import connect, picture
from envs.wrappers import check_action

X = 0.6  # everything happens in this plane (m)
HINGE_HEIGHT = 0.165  # of the finger's axis above the table (m)
TIP = 0.15  # from the axis to the tip (m)
LIMIT = 0.38  # of gripper and tip along y (m)
STROKE = 0.05  # of the gripper at action 1 (m)
SPEED = 0.1  # of the gripper (m/s)
SOFTEST, STIFFEST = 0.007, 0.047  # torque limit of the hinge (N m)
INNER_STEP = 1 / 240  # (s)
MAX_INNER_STEPS = 240  # twice a full stroke; counted, since a clock would make results vary
SETTLING_STEPS = 10

START_MARGIN = 0.02  # free layout: from the limits, else an episode could end at its first step
CLEARANCE = 0.025  # between gripper and bump at the start, else the finger would start inside it
MOVED = 0.001  # a bump that moved further than this has been touched too hard (m)
PUSHED = 0.010  # what the right-hand bump has to move (m)


class Bumps(gym.Env, EzPickle):
    """Push bump 2 (the one at larger y) to the right by more than 1 cm and never move bump 1.

    Observation: tip y in [-0.55, 0.55] m and finger angle in [-1.1, 1.1] rad, 0 is straight down,
    negative while the tip is held back on the left. With `full_state` also y of bump 1 and bump 2.
    Action, both in [-1, 1] (clipped): stroke, the gripper moves by 0.05 m times this; stiffness s,
    the hinge yields at 0.007 + 0.040 (s + 1) / 2 N m. At stroke 0 nothing moves and no time passes.

    task "normal-test": one of three layouts; reward 1 on success, -1 for a wrong push, which ends
    the episode. task "normal": free layout; reward 1 on success, 0 for a wrong push, which ends it.
    Both end when the tip reaches +-0.38 m. `info["is_success"]` tells whether the reward is 1.
    With `max_decisions` the task is to succeed within so many decisions, and ends after them.

    `reset(options=...)` takes "layout": 1, 2 or 3 (normal-test), or "bumps": (y1, y2) in m, and
    "gripper": y in m. Raises UserError if pybullet is missing, or if the options, the shape of an
    action or its values make no sense.
    """

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, task="normal-test", full_state=False, max_decisions=None, render_mode=None):
        EzPickle.__init__(self, task, full_state, max_decisions, render_mode)
        self.task, self.full_state, self.render_mode = task, full_state, render_mode
        self.max_decisions = max_decisions
        high = np.array([0.55, 1.1, 0.55, 0.55][: 4 if full_state else 2], np.float32)
        self.observation_space = Box(-high, high)
        self.action_space = Box(-1, 1, (2,), np.float32)
        self.client = connect()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._build(*self._draw(options or {}))
        self._set_stiffness(SOFTEST, max_velocity=0.1)
        for _ in range(SETTLING_STEPS):
            self.client.stepSimulation()
        self._start = self.bumps_y()
        self._decisions = 0
        return self._obs(), {"is_success": False}

    def step(self, action):
        stroke, stiffness = (min(max(value, -1.0), 1.0) for value in check_action(action, 2))
        if stroke != 0:
            torque = SOFTEST + (stiffness + 1) / 2 * (STIFFEST - SOFTEST)
            self._set_stiffness(torque, max_velocity=1.0)
            self._move(STROKE * stroke)

        tip = self.tip_y()
        bumps = self.bumps_y()
        d1, d2 = bumps - self._start
        failed = bool(abs(d1) > MOVED or d2 < -MOVED)
        success = bool(d2 > PUSHED and tip < bumps[1]) and not failed
        reward = 1.0 if success else -1.0 if failed and self.task == "normal-test" else 0.0
        self._decisions += 1
        timed_out = self._decisions == self.max_decisions
        terminated = success or failed or timed_out or bool(abs(tip) >= LIMIT)
        return self._obs(), reward, terminated, False, {"is_success": success}

    def render(self):
        """(256, 640, 3) uint8: bump 2 is green, the finger is redder the stiffer it is."""
        if self.render_mode != "rgb_array":
            return None
        shade = 0.9 - 0.8 * (self._torque - SOFTEST) / (STIFFEST - SOFTEST)
        self.client.changeVisualShape(self._finger, 1, rgbaColor=[0.95, shade * 0.8, 0.1, 1])
        return picture(self.client, [X + 2, 0, 0.3], [X, 0, 0.09], 10, 640, 256)

    def close(self):
        if self.client is not None:
            self.client.disconnect()
            self.client = None

    def tip_y(self):
        """Position of the finger's tip along y (m)."""
        gripper, angle = self._joints()
        return gripper + TIP * np.sin(angle)

    def bumps_y(self):
        """Positions of bump 1 and bump 2 along y (m), (2,)."""
        return np.array(
            [self.client.getBasePositionAndOrientation(bump)[0][1] for bump in self._bumps]
        )

    def _obs(self):
        obs = [self.tip_y(), self._joints()[1]]
        if self.full_state:
            obs += list(self.bumps_y())
        return np.array(obs, np.float32)

    def _joints(self):
        states = self.client.getJointStates(self._finger, [0, 1])
        return states[0][0], states[1][0]  # gripper y (m), finger angle (rad)

    def _draw(self, options):
        """Positions at the start: y of bump 1, bump 2 and gripper (m)."""
        known = (
            {"layout", "bumps", "gripper"} if self.task == "normal-test" else {"bumps", "gripper"}
        )
        if not set(options) <= known:
            raise UserError(f"bumps: reset options are {sorted(known)}, not {sorted(options)}")
        if options.get("layout", 1) not in (1, 2, 3):
            raise UserError(f"bumps: layout is 1, 2 or 3, not {options['layout']!r}")
        draw = self._draw_test if self.task == "normal-test" else self._draw_free
        bump1, bump2, gripper = draw(options.get("layout"))
        bump1, bump2 = options.get("bumps", (bump1, bump2))
        gripper = options.get("gripper", gripper)
        if not (-LIMIT < bump1 < bump2 < LIMIT and abs(gripper) < LIMIT):
            raise UserError(
                "bumps: positions must lie within +-0.38 m, bump 1 on the left; "
                f"got bumps {bump1}, {bump2} and gripper {gripper}"
            )
        return float(bump1), float(bump2), float(gripper)

    def _draw_test(self, layout):
        rng = self.np_random
        drawn = int(rng.integers(1, 4))
        k = drawn if layout is None else int(layout)
        bump1 = -0.4 + 0.16 * k + rng.uniform(-0.03, 0.03)
        bump2 = -0.4 + 0.16 * (k + 1) + rng.uniform(-0.03, 0.03)
        gripper = rng.uniform(-0.03, 0.03)
        while min(abs(gripper - bump1), abs(gripper - bump2)) < CLEARANCE:  # once in 200 episodes
            gripper = rng.uniform(-0.03, 0.03)
        return bump1, bump2, gripper

    def _draw_free(self, _):
        rng = self.np_random
        if rng.random() < 0.5:
            bump1 = rng.uniform(-0.28, 0.16)
            bump2 = rng.uniform(bump1 + 0.12, min(bump1 + 0.32, 0.28))
        else:
            bump2 = rng.uniform(-0.16, 0.28)
            bump1 = rng.uniform(max(bump2 - 0.32, -0.28), bump2 - 0.12)
        end = LIMIT - START_MARGIN
        low = np.array([-end, bump1 + 0.04, bump2 + 0.04])
        length = np.array([bump1 - 0.04, bump2 - 0.04, end]) - low
        k = rng.choice(3, p=length / length.sum())
        return bump1, bump2, low[k] + length[k] * rng.random()

    def _build(self, bump1, bump2, gripper):
        """Makes the world anew: 2 ms, and nothing of the last episode can remain."""
        c = self.client
        c.resetSimulation()
        # Not deterministicOverlappingPairs: it solves the contacts of bump 1 and bump 2 in another
        # order, and a touch would tell by 0.003 rad which of them it is.
        c.setPhysicsEngineParameter(fixedTimeStep=INNER_STEP, numSolverIterations=50)
        c.setGravity(0, 0, -9.8)
        visual = -1  # without one, the plane is drawn as a chequered floor
        if self.render_mode == "rgb_array":
            visual = c.createVisualShape(
                c.GEOM_BOX,
                halfExtents=[0.06, 0.42, 0.005],
                visualFramePosition=[X, 0, -0.005],
                rgbaColor=[0.85, 0.8, 0.7, 1],
            )
        table = c.createMultiBody(0, c.createCollisionShape(c.GEOM_PLANE), visual)
        c.changeDynamics(table, -1, lateralFriction=1.0, restitution=0.0)
        self._finger = self._build_finger()
        c.resetJointState(self._finger, 0, gripper)
        c.setJointMotorControl2(self._finger, 0, c.VELOCITY_CONTROL, targetVelocity=0, force=1000)
        self._bumps = [
            self._build_bump(bump1, [0.55, 0.55, 0.6, 1]),
            self._build_bump(bump2, [0.2, 0.7, 0.3, 1]),
        ]

    def _build_finger(self):
        c = self.client
        blade = {"halfExtents": [0.0125, 0.0025, 0.075]}
        shape = c.createCollisionShape(c.GEOM_BOX, collisionFramePosition=[0, 0, -0.075], **blade)
        visuals = [-1, -1]
        if self.render_mode == "rgb_array":
            colour = [0.3, 0.35, 0.45, 1]
            visuals = [
                c.createVisualShape(
                    c.GEOM_BOX,
                    halfExtents=[0.02, 0.02, 0.012],
                    visualFramePosition=[0, 0, 0.012],
                    rgbaColor=colour,
                ),
                c.createVisualShape(c.GEOM_BOX, visualFramePosition=[0, 0, -0.075], **blade),
            ]
        finger = c.createMultiBody(
            baseMass=0,
            basePosition=[X, 0, HINGE_HEIGHT],
            linkMasses=[1.0, 0.02],
            linkCollisionShapeIndices=[-1, shape],
            linkVisualShapeIndices=visuals,
            linkPositions=[[0, 0, 0]] * 2,
            linkOrientations=[[0, 0, 0, 1]] * 2,
            linkInertialFramePositions=[[0, 0, 0]] * 2,  # on the axis: gravity does not turn it
            linkInertialFrameOrientations=[[0, 0, 0, 1]] * 2,
            linkParentIndices=[0, 1],
            linkJointTypes=[c.JOINT_PRISMATIC, c.JOINT_REVOLUTE],
            linkJointAxis=[[0, 1, 0], [1, 0, 0]],
        )
        c.changeDynamics(
            finger,
            1,
            lateralFriction=1.0,
            rollingFriction=1e-4,
            localInertiaDiagonal=[1.26e-4, 1.30e-4, 5.4e-6],
            jointLowerLimit=-np.pi / 3,
            jointUpperLimit=np.pi / 3,
        )
        return finger

    def _build_bump(self, y, colour):
        """A cylinder with a half sphere on top, 4 cm high; its centre of mass is on the table."""
        c = self.client
        parts = {"shapeTypes": [c.GEOM_CYLINDER, c.GEOM_SPHERE], "radii": [0.02, 0.02]}
        places = [[0, 0, 0.01], [0, 0, 0.02]]
        shape = c.createCollisionShapeArray(
            lengths=[0.02, 0.0], collisionFramePositions=places, **parts
        )
        visual = -1
        if self.render_mode == "rgb_array":
            visual = c.createVisualShapeArray(
                lengths=[0.02, 0.0], visualFramePositions=places, rgbaColors=[colour] * 2, **parts
            )
        bump = c.createMultiBody(0.1, shape, visual, basePosition=[X, y, 0])
        c.changeDynamics(
            bump,
            -1,
            lateralFriction=0.2,
            rollingFriction=1e-4,
            localInertiaDiagonal=[1.058e-4] * 3,
        )
        return bump

    def _set_stiffness(self, torque, max_velocity):
        self._torque = torque
        self.client.setJointMotorControl2(
            self._finger,
            1,
            self.client.POSITION_CONTROL,
            targetPosition=0,
            force=torque,
            maxVelocity=max_velocity,
        )

    def _move(self, distance):
        """Slides the gripper until it is past its target or the limit, MAX_INNER_STEPS at most."""
        c = self.client
        sign = 1 if distance > 0 else -1
        # Without the slack, rounding would decide between 120 and 121 inner steps.
        goal = min(sign * self._joints()[0] + abs(distance), LIMIT) - 1e-5
        c.setJointMotorControl2(
            self._finger, 0, c.VELOCITY_CONTROL, targetVelocity=sign * SPEED, force=1000
        )
        joint_state, step = c.getJointState, c.stepSimulation  # looked up once: 20 % faster
        for _ in range(MAX_INNER_STEPS):
            if sign * joint_state(self._finger, 0)[0] >= goal:
                break
            step()
