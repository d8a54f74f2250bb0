#!/bin/bash
# A Slurm job: hello.py on two nodes, with two workers on each. Change what stands behind #SBATCH for your cluster.
#
#   $ sbatch --wait slurm.sh && cat hello.out
#   Submitted batch job …
#   [0] rank 0 of 4: 6
#   [1] rank 1 of 4: 6
#   [2] rank 2 of 4: 6
#   [3] rank 3 of 4: 6
#
# Slurm runs this script on the first node. dlaunch sees there which nodes the job has, starts itself on the others by
# srun, and starts as many workers as Slurm has tasks. With `--nproc 8` it starts 8 on each node.
#SBATCH --job-name=hello
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --output=hello.out
dlaunch ../hello.py
