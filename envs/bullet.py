"""What the pybullet environments share: a simulation of one's own, and its picture."""

import os

import numpy as np

from common.errors import UserError

NO_PYBULLET = (
    "pybullet is not installed; it has wheels for Linux x86-64 with Python 3.9 to 3.11: use Python "
    "3.11 there (pip install pybullet), elsewhere conda install -c conda-forge pybullet"
)


def connect():
    """A pybullet simulation in this process that no other environment shares, without a window.

    Every call on the returned client goes to this simulation; `client.disconnect()` frees it.
    Raises UserError if pybullet is not installed.
    """
    try:
        import pybullet
        from pybullet_utils.bullet_client import BulletClient
    except ImportError as error:
        raise UserError(NO_PYBULLET) from error
    # Its own __init__ prints a line to stdout for every connection.
    client = BulletClient.__new__(BulletClient)
    client._client, client._pid, client._shapes = pybullet.connect(pybullet.DIRECT), os.getpid(), {}
    return client


def picture(client, eye, target, fov, width, height):
    """Draws the simulation with pybullet's software renderer: no display and no OpenGL.

    eye, target: of the camera (m).  fov: vertical field of view (degrees).
    Returns (height, width, 3) uint8.
    """
    _, _, pixels, _, _ = client.getCameraImage(
        width,
        height,
        viewMatrix=client.computeViewMatrix(eye, target, [0, 0, 1]),
        projectionMatrix=client.computeProjectionMatrixFOV(fov, width / height, 0.1, 100.0),
        lightDirection=[eye[0] - target[0], -1, 2],
        renderer=client.ER_TINY_RENDERER,
        flags=client.ER_NO_SEGMENTATION_MASK,
    )
    return np.array(pixels, np.uint8).reshape(height, width, 4)[:, :, :3].copy()
