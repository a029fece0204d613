"""The environments: envs/table.py lists them, `python -m envs` prints the list."""
