# What --emit writes is what Kubernetes' and JobSet's published schemas know. They come from PyPI:
# kubernetes-validate has the API server's, kubeflow-trainer-api the JobSet's.
source "$SOURCE/tests/scenario/common.sh"
for module in yaml kubernetes_validate kubeflow_trainer_api; do
  python3 -c "import $module" 2>/dev/null || skip "python3 has no $module"
done
options=(--image reg/train:1 --nnodes 2:4 --nproc 8 --gpus 8 --max-restarts 3)
run dlaunch --emit kubernetes "${options[@]}" ./train 'two words'; expect_code 0; mv out job.yaml
run dlaunch --emit jobset "${options[@]}" ./train; expect_code 0; mv out jobset.yaml
cat > check.py <<'END'
import kubernetes_validate, yaml
from kubeflow_trainer_api import models

def lost(given, known, path):
    """What is not in the model is dropped by it."""
    if isinstance(given, dict):
        return [p for k, v in given.items() for p in (lost(v, known[k], f"{path}.{k}") if k in known else [f"{path}.{k}"])]
    if isinstance(given, list):
        return [p for i, v in enumerate(given) for p in lost(v, known[i], f"{path}[{i}]")]
    return [] if given == known else [path]

job = list(yaml.safe_load_all(open("job.yaml")))
jobset = list(yaml.safe_load_all(open("jobset.yaml")))
assert [d["kind"] for d in job] == ["Secret", "Service", "Job"]
assert [d["kind"] for d in jobset] == ["Secret", "JobSet"]
inner = jobset[1]["spec"]["replicatedJobs"][0]["template"]
inner_job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"}, "spec": inner["spec"]}
for document in job + jobset[:1] + [inner_job]:
    for version in ("1.26", "1.29", "1.32", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(document, version, strict=True)
gone = lost(jobset[1], models.JobsetV1alpha2JobSet.from_dict(jobset[1]).to_dict(), "JobSet")
assert not gone, gone
END
run python3 check.py; expect_code 0
