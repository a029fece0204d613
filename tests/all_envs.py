"""Hands all environments of the table to Gymnasium when imported, for gym.make in tests."""

from envs.table import ENVS, register

for _id in ENVS:
    register(_id)
