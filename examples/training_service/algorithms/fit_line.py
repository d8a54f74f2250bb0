"""Fits a line to points on y = slope x + 1: gradient descent, with the points divided among the ranks."""

import argparse

import numpy as np

import dlaunch

parser = argparse.ArgumentParser()
parser.add_argument("--slope", type=float, default=3.0)
parser.add_argument("--steps", type=int, default=200)
options = parser.parse_args()

comm = dlaunch.init()
x = np.random.default_rng(seed=comm.rank).uniform(-1, 1, 1000)  # this rank's points
y = options.slope * x + 1

w = np.zeros(2)  # slope and offset, equal on all ranks
for step in range(options.steps):
    error = w[0] * x + w[1] - y
    gradient = np.array([2 * np.mean(error * x), 2 * np.mean(error)])
    w -= 0.5 * comm.all_reduce(gradient, "avg")

if comm.rank == 0:
    print(f"y = {w[0]:.3f} x + {w[1]:.3f}")
