"""Settings for all tests: one thread each, since two tests run side by side."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
