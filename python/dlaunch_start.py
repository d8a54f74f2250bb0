"""Runs when the Python of a dlaunch worker starts: dlaunch.pth, beside this file, imports it.

It imports nothing itself. When the program imports JAX, it describes the job to JAX, so that
jax.distributed.initialize() needs no arguments. When the program imports TensorFlow, it sets TF_CONFIG, so that
MultiWorkerMirroredStrategy() and ParameterServerStrategy() find the other workers. A Python that dlaunch did not start
does not import it.
"""

import os
import sys


class AfterImport:
    """An entry of sys.meta_path. Calls after(module) once a module of that name has been executed."""

    def __init__(self, name, after):
        self.name, self.after = name, after

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        # A program that only asks whether the module exists comes here, too: the import may follow.
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader.exec_module = self._with_after(spec.loader.exec_module)
        return spec

    def _with_after(self, execute):
        def exec_module(module):
            if self in sys.meta_path:
                sys.meta_path.remove(self)  # once is enough
            execute(module)
            try:
                self.after(module)
            except (AttributeError, TypeError, ValueError) as error:  # the program runs without it
                import warnings
                warnings.warn(f"dlaunch could not prepare {self.name} for this job: {error!r}", RuntimeWarning)
        return exec_module


def _local_device():
    """The device of the host for this rank; None: all visible ones."""
    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    if ranks == 1:
        return None
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in os.environ and len(os.environ[name].split(",")) < ranks:
            return None  # each rank sees only its own
    return int(os.environ["LOCAL_RANK"])


def set_tf_config(tensorflow):
    """An existing TF_CONFIG is the user's own."""
    if "DLAUNCH_TF_CONFIG" in os.environ:
        os.environ.setdefault("TF_CONFIG", os.environ["DLAUNCH_TF_CONFIG"])


def add_jax_cluster(cluster):
    """cluster: jax._src.clusters.cluster, or an object with its ClusterEnv."""

    class DlaunchCluster(cluster.ClusterEnv):
        name = "dlaunch"

        @classmethod
        def is_env_present(cls):
            return all(name in os.environ for name in ("DLAUNCH_JOB_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))

        @classmethod
        def get_coordinator_address(cls, timeout_secs=None, override_coordinator_port=None):
            host = os.environ["MASTER_ADDR"]
            port = override_coordinator_port or os.environ["MASTER_PORT"]
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

        @classmethod
        def get_process_count(cls):
            return int(os.environ["WORLD_SIZE"])

        @classmethod
        def get_process_id(cls):
            return int(os.environ["RANK"])

        @classmethod
        def get_local_process_id(cls):
            return _local_device()

    # JAX takes the first class that matches, and under srun or mpirun dlaunch's ranks are not theirs.
    known = cluster.ClusterEnv._cluster_types
    known.remove(DlaunchCluster)
    known.insert(0, DlaunchCluster)


sys.meta_path.insert(0, AfterImport("jax._src.clusters.cluster", add_jax_cluster))
sys.meta_path.insert(0, AfterImport("tensorflow", set_tf_config))
