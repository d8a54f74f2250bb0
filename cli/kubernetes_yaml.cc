#include "cli/kubernetes_yaml.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/text.h"
#include "base/version.h"
#include "cli/plan_kubernetes.h"

namespace dlaunch {
namespace {

using Kind = KubernetesJob::Kind;

// A JSON string, which is a YAML one.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Kubernetes replaces $(NAME) in a command, and $$ by $.
std::string literal(const std::string& word) {
  std::string out;
  for (const char c : word) out += c == '$' ? "$$" : std::string(1, c);
  return out;
}

std::string indented(std::string_view text, int columns) {
  std::string out;
  for (const auto line : split_words(text, '\n')) {
    out += std::string(static_cast<std::size_t>(columns), ' ') + std::string(line) + '\n';
  }
  return out;
}

std::string secret_yaml(const KubernetesJob& job) {
  return fmt::format(R"(apiVersion: v1
kind: Secret
metadata:
  name: {0}
type: Opaque
stringData:
  secret: "{1}"  # what the pods prove to each other
)",
                     job.name, job.secret);
}

std::string service_yaml(const KubernetesJob& job) {
  return fmt::format(R"(apiVersion: v1
kind: Service
metadata:
  name: {0}
spec:
  clusterIP: None  # for names only: pod I is {0}-I.{0}
  publishNotReadyAddresses: true  # the pods look for each other as they start
  selector:
    dlaunch: {0}
  ports:
  - name: rendezvous
    port: {1}
)",
                     job.name, kKubernetesPort);
}

// The head of an object that Kueue admits, if a queue is named.
std::string head_yaml(const KubernetesJob& job, const char* version, const char* kind) {
  std::string out =
      fmt::format("apiVersion: {}\nkind: {}\nmetadata:\n  name: {}\n", version, kind, job.name);
  if (job.queue.empty()) return out;
  out += fmt::format("  labels:\n    kueue.x-k8s.io/queue-name: {}\n", quoted(job.queue));
  if (job.kind != Kind::job || job.min_nodes == job.nodes) return out;
  return out + fmt::format(R"(  annotations:
    # Kueue may admit the job with fewer pods, as --nnodes allows.
    kueue.x-k8s.io/job-min-parallelism: "{}"
    kueue.x-k8s.io/job-completions-equal-parallelism: "true"
)",
                           job.min_nodes);
}

std::string command_yaml(const KubernetesJob& job) {
  std::string out = "command:\n";
  for (const auto& word : job.command) out += fmt::format("- {}\n", quoted(literal(word)));
  return out;
}

std::string gpus_yaml(const KubernetesJob& job, const char* field) {
  if (job.gpus == 0) return "";
  return fmt::format("{}:\n  limits:\n    nvidia.com/gpu: {}\n", field, job.gpus);
}

// Trainer puts the command and the GPUs into the container named node.
std::string container_yaml(const KubernetesJob& job) {
  const bool by_trainer = job.kind == Kind::trainjob;
  std::string out =
      fmt::format("- name: {}\n  image: {}\n", by_trainer ? "node" : "dlaunch", quoted(job.image));
  if (!by_trainer) out += indented(command_yaml(job) + gpus_yaml(job, "resources"), 2);
  out += fmt::format(R"(  ports:
  - name: rendezvous
    containerPort: {}
  # No probes: dlaunch ends with its workers, and finds those that hang (--hang-timeout); a
  # kubelet could only kill a pod that is slow to answer, and nobody waits for one to be ready.
  volumeMounts:
  - name: secret
    mountPath: {}
    readOnly: true
  - name: shm
    mountPath: /dev/shm
)",
                     kKubernetesPort, kPodSecretFolder);
  return out;
}

std::string pod_yaml(const KubernetesJob& job) {
  // dlaunch kills after --grace, and then prints its report.
  const auto grace = std::chrono::ceil<std::chrono::seconds>(job.grace).count() + 5;
  std::string out = fmt::format("metadata:\n  labels:\n    dlaunch: {}\nspec:\n", job.name);
  if (job.kind != Kind::lws) out += "  restartPolicy: Never\n";
  if (job.kind == Kind::job) out += fmt::format("  subdomain: {}  # the Service's\n", job.name);
  out += fmt::format("  terminationGracePeriodSeconds: {}  # --grace and 5 s\n", grace);
  out += "  containers:\n" + indented(container_yaml(job), 2);
  return out + fmt::format(R"(  volumes:
  - name: secret
    secret:
      secretName: {}
      # 0400. A container that is not root's needs 288 (0440), and securityContext.fsGroup.
      defaultMode: 256
  # For PyTorch's data loaders, which find 64 MiB there otherwise; dlaunch does not need it. What
  # is used of it counts as memory of the pod.
  - name: shm
    emptyDir:
      medium: Memory
)",
                           job.name);
}

// One pod for each node; Trainer sets the number itself.
std::string job_spec(const KubernetesJob& job) {
  // 137 is also the exit code for a worker that the kernel killed for lack of memory: if dlaunch
  // does not go on after that, Kubernetes should not either.
  const bool retry_killed = job.survives_losses;
  std::string out = "completionMode: Indexed  # JOB_COMPLETION_INDEX numbers the nodes\n";
  if (job.kind != Kind::trainjob) {
    out += fmt::format("completions: {0}\nparallelism: {0}\n", job.nodes);
  }
  out += fmt::format(
      "# dlaunch itself restarts workers (--max-restarts), so a failure of the program ends the "
      "Job. A "
      "pod\n# is replaced, and its dlaunch joins again, if Kubernetes took it away, and up to "
      "backoffLimit times\n# if it exited with 69, for it lost the leading dlaunch, or was {1}.\n"
      R"(backoffLimit: {0}
podFailurePolicy:
  rules:
  - action: Ignore
    onPodConditions:
    - type: DisruptionTarget
      status: "True"
  - action: FailJob
    onExitCodes:
      operator: NotIn
      values: [69, {2}143]
    onPodConditions: []  # for Kubernetes before 1.29, whose schema wants it
template:
)",
      job.nodes, retry_killed ? "killed or ended (137, 143)" : "ended (143)",
      retry_killed ? "137, " : "");
  return out + indented(pod_yaml(job), 2);
}

std::string job_yaml(const KubernetesJob& job) {
  return head_yaml(job, "batch/v1", "Job") + "spec:\n" + indented(job_spec(job), 2);
}

// The spec of a JobSet, whose pod I is NAME-node-0-I.NAME. Trainer finds its Job by the label.
std::string jobset_spec(const KubernetesJob& job) {
  std::string out = fmt::format(R"(network:
  enableDNSHostnames: true
  subdomain: {0}  # pod I is {0}-node-0-I.{0}
  publishNotReadyAddresses: true  # the pods look for each other as they start
replicatedJobs:
- name: node
  replicas: 1
  template:
)",
                                job.name);
  if (job.kind == Kind::trainjob) {
    out +=
        "    metadata:\n      labels:\n"
        "        trainer.kubeflow.org/trainjob-ancestor-step: trainer\n";
  }
  return out + "    spec:\n" + indented(job_spec(job), 6);
}

std::string jobset_yaml(const KubernetesJob& job) {
  return head_yaml(job, "jobset.x-k8s.io/v1alpha2", "JobSet") + "spec:\n" +
         indented(jobset_spec(job), 2);
}

std::string trainjob_yaml(const KubernetesJob& job) {
  const std::string runtime = fmt::format(R"(apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: {}
spec:
  mlPolicy:
    numNodes: {}
  template:
    spec:
)",
                                          job.name, job.nodes);
  const std::string trainer = fmt::format("image: {}\n", quoted(job.image)) + command_yaml(job) +
                              fmt::format("numNodes: {}\n", job.nodes) +
                              gpus_yaml(job, "resourcesPerNode");
  return runtime + indented(jobset_spec(job), 6) + "---\n" +
         head_yaml(job, "trainer.kubeflow.org/v1alpha1", "TrainJob") +
         fmt::format(
             "spec:\n  runtimeRef:\n    apiGroup: trainer.kubeflow.org\n    kind: "
             "TrainingRuntime\n    name: {}\n  trainer:\n",
             job.name) +
         indented(trainer, 4);
}

std::string lws_yaml(const KubernetesJob& job) {
  const char* const policy = job.survives_losses ? "None" : "RecreateGroupOnPodRestart";
  return head_yaml(job, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") +
         fmt::format(R"(spec:
  replicas: 1
  leaderWorkerTemplate:
    size: {}  # LWS_WORKER_INDEX numbers the nodes, LWS_LEADER_ADDRESS leads to the first
    # {}
    restartPolicy: {}
    workerTemplate:
)",
                     job.nodes,
                     job.survives_losses
                         ? "dlaunch goes on without a pod that is lost, and takes it back."
                         : "A pod that is lost ends the job, which begins again with new pods.",
                     policy) +
         indented(pod_yaml(job), 6);
}

std::string body_yaml(const KubernetesJob& job) {
  switch (job.kind) {
    case Kind::job:
      return service_yaml(job) + "---\n" + job_yaml(job);
    case Kind::jobset:
      return jobset_yaml(job);
    case Kind::trainjob:
      return trainjob_yaml(job);
    case Kind::lws:
      return lws_yaml(job);
  }
  return "";
}

}  // namespace

const char* word_of(KubernetesJob::Kind kind) {
  static constexpr std::array kWords = {"kubernetes", "jobset", "trainjob", "lws"};
  return kWords[static_cast<std::size_t>(kind)];
}

std::string kubernetes_yaml(const KubernetesJob& job) {
  return fmt::format(
             "# Written by dlaunch {} --emit {}. Start: kubectl apply -f FILE. Watch: kubectl logs "
             "-f\n# {}. End, or clear away: kubectl delete -f FILE\n",
             DLAUNCH_VERSION, word_of(job.kind),
             job.kind == Kind::job ? "job/" + job.name : "-l dlaunch=" + job.name) +
         secret_yaml(job) + "---\n" + body_yaml(job);
}

}  // namespace dlaunch
