# The output of --emit matches the published schemas of Kubernetes, JobSet and Kubeflow Trainer. They come
# from PyPI: kubernetes-validate has the API server's, kubeflow-trainer-api the others. No package has
# LeaderWorkerSet's; its fields are those of leaderworkerset_types.go, v1.
source "$SOURCE/tests/scenario/common.sh"
for module in yaml kubernetes_validate kubeflow_trainer_api; do
  python3 -c "import $module" 2>/dev/null || skip "python3 has no $module"
done
options=(--image reg/train:1 --nnodes 2:4 --nproc 8 --gpus 8 --max-restarts 3 --queue team-a)
run dlaunch --emit kubernetes "${options[@]}" ./train 'two words'; expect_code 0; mv out job.yaml
run dlaunch --emit jobset "${options[@]}" ./train; expect_code 0; mv out jobset.yaml
for kind in trainjob lws; do run dlaunch --emit $kind "${options[@]}" ./train; expect_code 0; mv out $kind.yaml; done
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

job, jobset, trainjob, lws = (list(yaml.safe_load_all(open(f"{k}.yaml"))) for k in ["job", "jobset", "trainjob", "lws"])
assert [d["kind"] for d in job] == ["Secret", "Service", "Job"]
assert [d["kind"] for d in jobset] == ["Secret", "JobSet"]
assert [d["kind"] for d in trainjob] == ["Secret", "TrainingRuntime", "TrainJob"]
assert [d["kind"] for d in lws] == ["Secret", "LeaderWorkerSet"]

def job_in(spec):
    """The Job that a JobSet's spec makes."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"},
            "spec": spec["replicatedJobs"][0]["template"]["spec"]}

runtime, train = trainjob[1:]
trained = runtime["spec"]["template"]["spec"]
# Trainer fills these in, so they must be where it looks for them, and nowhere else.
assert trained["replicatedJobs"][0]["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
container = job_in(trained)["spec"]["template"]["spec"]["containers"][0]
assert container["name"] == "node" and "command" not in container and "resources" not in container
assert train["spec"]["trainer"]["command"][0] == "dlaunch" and train["spec"]["trainer"]["numNodes"] == 4
assert train["spec"]["runtimeRef"] == {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": runtime["metadata"]["name"]}

group = lws[1]["spec"]
assert set(group) <= {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"}
template = group["leaderWorkerTemplate"]
assert set(template) <= {"leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy"}
assert template["size"] == 4 and template["restartPolicy"] in ["None", "RecreateGroupOnPodRestart"]
# Its pods are like those of a StatefulSet.
pods = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "inner"},
        "spec": {"serviceName": "s", "selector": {"matchLabels": template["workerTemplate"]["metadata"]["labels"]},
                 "template": template["workerTemplate"]}}
for admitted in job[2], jobset[1], train, lws[1]:
    assert admitted["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}, admitted["kind"]
for document in job + jobset[:1] + [job_in(jobset[1]["spec"]), job_in(trained), pods]:
    for version in ("1.26", "1.29", "1.32", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(document, version, strict=True)
for document, model in [(jobset[1], models.JobsetV1alpha2JobSet), (runtime, models.TrainerV1alpha1TrainingRuntime),
                        (train, models.TrainerV1alpha1TrainJob)]:
    gone = lost(document, model.from_dict(document).to_dict(), document["kind"])
    assert not gone, gone
END
run python3 check.py; expect_code 0
