"""MuJoCo without a display: when an OpenGL library is loaded, and which one.

Training from states must run where no OpenGL library is installed, so MuJoCo's packages are
imported with drawing switched off. The first environment that draws calls `use_gl`, which tries
EGL, then OSMesa, in a process of its own (a broken driver may hang or crash there, not here).
dm_control and Gymnasium's MuJoCo renderer both read the choice from the variable MUJOCO_GL.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys

from common.errors import UserError

KNOWN_PAIR = "dm_control 1.0.50 with mujoco 3.17"
CANDIDATES = ("egl", "osmesa") if sys.platform.startswith("linux") else ("glfw",)
NAMES = {"egl": "EGL", "osmesa": "OSMesa", "glfw": "GLFW"}
PROBE_TIMEOUT = 60  # seconds; a good driver answers within 2

_PROBE = """
import mujoco
context = mujoco.GLContext(64, 64)
context.make_current()
model = mujoco.MjModel.from_xml_string("<mujoco/>")
mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
"""

_chosen = None  # back end of this process, kept because the OpenGL library cannot be changed later


def load(module):
    """Imports a module that needs MuJoCo, without touching OpenGL.

    Raises UserError if a package is missing or the versions do not fit together.
    """
    versions = {name: _version(name) for name in ("mujoco", "dm_control")}
    # mujoco 4 changed names that dm_control 1.0 and Gymnasium use; the failure comes late and odd.
    if int((versions["mujoco"] or "0").split(".")[0]) >= 4:
        raise UserError(
            f"mujoco {versions['mujoco']} does not work here; install the known pair, "
            f"{KNOWN_PAIR}: pip install -r requirements.txt"
        )
    before = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disabled"
    try:
        return importlib.import_module(module)
    except Exception as error:  # packages that do not fit fail in many ways, AttributeError first
        package = (getattr(error, "name", None) or module).split(".")[0]
        if isinstance(error, ImportError) and importlib.util.find_spec(package) is None:
            raise UserError(
                f"this environment needs the package {package}, which is not installed: "
                "pip install -r requirements.txt, with Python 3.10 to 3.12"
            ) from error
        found = " and ".join(f"{name} {version or '-'}" for name, version in versions.items())
        raise UserError(
            f"importing {module} failed with {found} ({type(error).__name__}: {error}); "
            f"install the known pair, {KNOWN_PAIR}: pip install -r requirements.txt"
        ) from error
    finally:
        _set_environ("MUJOCO_GL", before)


def load_gymnasium(entry_point, render_mode=None, **options):
    """An environment of Gymnasium's that needs MuJoCo, such as "reacher_v5:ReacherEnv".

    render_mode: None or "rgb_array".  Raises UserError as `load`, and on other render modes.
    """
    if render_mode not in (None, "rgb_array"):
        raise UserError(f"render mode {render_mode} is not offered; use rgb_array")
    load("mujoco")
    module, _, name = entry_point.partition(":")
    make = getattr(load(f"gymnasium.envs.mujoco.{module}"), name)
    if render_mode:
        use_gl()
    return make(render_mode=render_mode, **options)


def use_gl():
    """Makes drawing with MuJoCo possible in this process and returns the back end, such as "egl".

    A user's own MUJOCO_GL is tried alone. Prints once, to stderr, which one was taken.
    Raises UserError if none works.
    """
    global _chosen
    if _chosen is None:
        _chosen = _choose()
        # PyTorch's CUDA builds load Triton with the first optimizer, which crashes after Mesa.
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")
        print(f"rendering: MuJoCo draws through {NAMES[_chosen]}", file=sys.stderr)
    os.environ["MUJOCO_GL"] = _chosen
    if _chosen != "glfw":
        os.environ["PYOPENGL_PLATFORM"] = _chosen
    # One thread draws here; dm_control's own drawing thread for OSMesa fails when Python exits.
    os.environ.setdefault("DISABLE_RENDER_THREAD_OFFLOADING", "1")
    # dm_control settles on a renderer when it is imported, which `load` did with drawing off.
    module = sys.modules.get("dm_control._render")
    if module is not None and _chosen != module.BACKEND:
        importlib.reload(module)
    return _chosen


def _choose():
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if wanted and wanted not in NAMES:
        raise UserError(
            f"MUJOCO_GL={wanted} rules out drawing; unset it or set it to egl or osmesa"
        )
    tried = (wanted,) if wanted else CANDIDATES
    for name in tried:
        if _works(name):
            return name
    hint = " (MUJOCO_GL asks for it alone; unset it to try the others)" if wanted else ""
    raise UserError(
        f"no OpenGL to draw with: {' and '.join(NAMES[name] for name in tried)} failed{hint}; "
        "on Debian or Ubuntu: apt-get install libegl1 libgl1-mesa-dri (or libosmesa6). "
        "Training from states without videos needs none"
    )


def _works(name):
    environ = {**os.environ, "MUJOCO_GL": name}
    environ.pop("PYOPENGL_PLATFORM", None)
    try:
        run = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environ, capture_output=True, timeout=PROBE_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


def _set_environ(name, value):
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
