# dlaunch.pth in a site folder describes the job to JAX, only under dlaunch. A module in JAX's place shows what JAX
# gets. Scenario jax has the real JAX.
source "$SOURCE/tests/scenario/common.sh"
python=/usr/bin/python3
mkdir -p site fake/jax/_src/clusters
cp "$SOURCE/python/dlaunch.pth" "$SOURCE/python/dlaunch_start.py" site
touch fake/jax/__init__.py fake/jax/_src/__init__.py
cat >fake/jax/_src/clusters/cluster.py <<'P'
class ClusterEnv:
    _cluster_types = []
    def __init_subclass__(cls):
        cls._cluster_types.append(cls)
class Other(ClusterEnv):
    pass
P
echo 'from .cluster import ClusterEnv' >fake/jax/_src/clusters/__init__.py
cat >ask.py <<'P'
import site, sys
site.addsitedir("site")
sys.path.insert(0, "fake")
class Old:  # a finder for Pythons before 3.12
    def find_module(self, name, path=None):
        return None
sys.meta_path.insert(0, Old())
from jax._src.clusters import ClusterEnv
first = ClusterEnv._cluster_types[0]
if first.__name__ == "Other":
    sys.exit(f"not told; {len(sys.meta_path)} finders, start {'dlaunch_start' in sys.modules}")
print(first.name, first.is_env_present(), first.get_process_id(), first.get_process_count(), first.get_local_process_id(),
      first.get_coordinator_address(timeout_secs=3, override_coordinator_port=sys.argv[1] if sys.argv[1:] else None),
      sum(getattr(f, "name", "").startswith("jax") for f in sys.meta_path))
P
run dlaunch --nproc 2 "$python" ask.py; expect_code 0
expect_out '^\[1\] dlaunch True 1 2 1 127\.0\.0\.1:[0-9]+ 0$'
[ "$(grep -o '127.*:[0-9]*' out | sort -u | wc -l)" = 1 ] || fail "two coordinators"
run dlaunch --nproc 2 "$python" ask.py 4711; expect_code 0; expect_out '127\.0\.0\.1:4711'
# A rank that sees only its own devices, or is alone on its host, uses all devices that it sees.
run dlaunch --nproc 2 -x CUDA_VISIBLE_DEVICES=3 "$python" ask.py; expect_code 0; expect_out '^\[1\] dlaunch True 1 2 None '
run dlaunch --nproc 2 -x CUDA_VISIBLE_DEVICES=3,4 "$python" ask.py; expect_code 0; expect_out '^\[1\] dlaunch True 1 2 1 '
run dlaunch --nproc 1 "$python" ask.py; expect_code 0; expect_out 'dlaunch True 0 1 None '
run dlaunch --nproc 2 --master-addr ::1 "$python" ask.py; expect_code 0; expect_out ' \[::1\]:[0-9]+ 0$'
# Without dlaunch the file does nothing.
run "$python" ask.py; expect_code 1; expect_err '^not told; [0-9]+ finders, start False$'
# A JAX with other internals can still be imported.
echo 'class ClusterEnv: pass' >fake/jax/_src/clusters/cluster.py
run dlaunch --nproc 1 "$python" -c 'import site, sys; site.addsitedir("site"); sys.path.insert(0, "fake")
import jax._src.clusters; print("imported")'
expect_code 0; expect_out 'imported'; expect_err 'dlaunch could not prepare jax._src.clusters.cluster for this job: AttributeError'
