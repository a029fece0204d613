"""Small helpers that are not the algorithm: environments, logging, checkpoint files, errors."""
