#include "launcher/node/workers/worker_env.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "launcher/node/workers/oom.h"
#include "launcher/node/workers/tf_config.h"

using namespace dlaunch;

namespace {

bool has(const std::vector<std::string>& env, const std::string& item) {
  return std::find(env.begin(), env.end(), item) != env.end();
}
bool times_set(const std::vector<std::string>& env, const std::string& name) {
  return std::any_of(env.begin(), env.end(),
                     [&](const auto& item) { return item.starts_with(name + "="); });
}

Plan plan() {
  Plan p;
  p.argv = {"train", "--rank=${rank}/${world_size}", "${local_rank}", "${other}", "$", "${rank"};
  p.nproc = 4;
  p.job_id = "j";
  p.host = "h";
  p.max_restarts = {.restarts = 3};
  p.env = {{"NAME", "r${rank}"}, {"RANK", "override"}};
  return p;
}

const WorkerPlace kPlace{.round = 2,
                         .rank = 1,
                         .size = 4,
                         .local_rank = 1,
                         .local_size = 4,
                         .worker = 9,
                         .master_addr = "127.0.0.1",
                         .master_port = 4711,
                         .usable_cores = 8,
                         .store_url = "tcp://127.0.0.1:1",
                         .secret_file = "/s",
                         .agent_socket = "/a",
                         .round_dir = "/d",
                         .error_file = "/e/error.9.json"};

}  // namespace

TEST_CASE("torchrun's contract is there, stale variables are not, --env comes last") {
  const auto env =
      worker_environment(plan(), kPlace,
                         {"HOME=/root", "PMI_RANK=3", "OMPI_MCA_btl=self", "PMIX_MCA_gds=shmem",
                          "PMIX_RANK=3", "OMPI_MCA_ess=^singleton", "OMPI_MCA_orte_app_num=0",
                          "OMPI_UNIVERSE_SIZE=2", "WORLD_SIZE=99", "TORCHELASTIC_RUN_ID=old",
                          "SLURM_CPU_BIND_LIST=0x1", "SLURM_JOB_ID=7", "EMPTY="});
  for (const char* item : {"LOCAL_RANK=1",
                           "WORLD_SIZE=4",
                           "LOCAL_WORLD_SIZE=4",
                           "GROUP_RANK=0",
                           "GROUP_WORLD_SIZE=1",
                           "ROLE_RANK=1",
                           "ROLE_WORLD_SIZE=4",
                           "ROLE_NAME=default",
                           "MASTER_ADDR=127.0.0.1",
                           "MASTER_PORT=4711",
                           "TORCHELASTIC_RESTART_COUNT=1",
                           "TORCHELASTIC_MAX_RESTARTS=3",
                           "TORCHELASTIC_RUN_ID=j",
                           "TORCHELASTIC_USE_AGENT_STORE=False",
                           "TORCHELASTIC_ERROR_FILE=/e/error.9.json",
                           "DLAUNCH_AGENT=/a",
                           "DLAUNCH_WORKER=9",
                           "DLAUNCH_ROUND=2",
                           "DLAUNCH_LOCAL_CORES=8",
                           "HOME=/root",
                           "OMPI_MCA_btl=self",
                           "PMIX_MCA_gds=shmem",
                           "SLURM_JOB_ID=7",
                           "EMPTY=",
                           "NAME=r1",
                           "RANK=override"}) {
    CAPTURE(item);
    CHECK(has(env, item));
  }
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_UNIVERSE_SIZE", "SLURM_CPU_BIND_LIST"}) {
    CAPTURE(name);
    CHECK_FALSE(times_set(env, name));
  }
}

TEST_CASE("worker environment: an MPI library gets only the servers that exist") {
  WorkerPlace place = kPlace;
  CHECK_FALSE(times_set(worker_environment(plan(), place, {"PMI_SIZE=9"}), "PMI_SIZE"));
  place.pmi_fd = 17;
  const auto env = worker_environment(plan(), place, {"PMI_SIZE=9"});
  CHECK(has(env, "PMI_FD=17"));
  CHECK(has(env, "PMI_RANK=" + std::to_string(place.rank)));
  CHECK(has(env, "PMI_SIZE=" + std::to_string(place.size)));
}

TEST_CASE("a spare has no rank yet, not even that of an enclosing launcher") {
  WorkerPlace spare = kPlace;
  spare.rank = spare.local_rank = -1;
  Plan p = plan();
  p.env.clear();
  const auto env = worker_environment(p, spare, {"RANK=7", "LOCAL_RANK=7"});
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK", "OMPI_COMM_WORLD_RANK"}) {
    CAPTURE(name);
    CHECK_FALSE(times_set(env, name));
  }
  CHECK(has(env, "DLAUNCH_WORKER=9"));
}

TEST_CASE("libdlring waits without a limit for ranks that a person debugs") {
  Plan p = plan();
  CHECK_FALSE(times_set(worker_environment(p, kPlace, {}), "DLAUNCH_OP_TIMEOUT"));
  p.debugging.stopped.ranks = {2};
  const auto env = worker_environment(p, kPlace, {"DLAUNCH_INIT_TIMEOUT=5s"});
  CHECK(has(env, "DLAUNCH_OP_TIMEOUT=0"));
  CHECK(has(env, "DLAUNCH_INIT_TIMEOUT=5s"));
}

TEST_CASE("macros are replaced, and other text stays") {
  CHECK(worker_arguments(plan(), kPlace) ==
        std::vector<std::string>{"train", "--rank=1/4", "1", "${other}", "$", "${rank"});
}

TEST_CASE("a debugger that listens gets a port of its rank") {
  Plan p = plan();
  p.argv = {"debugpy", "${debug_port}"};
  CHECK(worker_arguments(p, kPlace) == std::vector<std::string>{"debugpy", "5679"});
}

TEST_CASE("counts are found in cgroup files of both versions") {
  std::uint64_t count = 0;
  CHECK(find_count("low 0\nhigh 0\noom 3\noom_kill 2\n", "oom_kill", count));
  CHECK(count == 2);
  CHECK(find_count("oom_kill_disable 0\nunder_oom 0\noom_kill 5", "oom_kill", count));
  CHECK(count == 5);
  CHECK_FALSE(find_count("oom_kill_disable 0\n", "oom_kill", count));
  CHECK_FALSE(find_count("", "oom_kill", count));
  const OomCounter before{true, 1, "/j", 0}, after{true, 3, "/j", std::uint64_t{2} << 30};
  CHECK(describe_oom(before, before).empty());
  CHECK(describe_oom(before, after) ==
        "memory cgroup /j (limit 2.0 GiB): out-of-memory kills rose from 1 to 3");
}

TEST_CASE("worker environment: the job decides on encryption, whatever the user's variable says") {
  Plan p = plan();
  CHECK(has(worker_environment(p, kPlace, {"DLAUNCH_TLS=no"}), "DLAUNCH_TLS=0"));
  p.tls = true;
  CHECK(has(worker_environment(p, kPlace, {"DLAUNCH_TLS=yes"}), "DLAUNCH_TLS=1"));
}

TEST_CASE("worker environment: --debug sets libdlring's variable") {
  Plan p = plan();
  p.debug = DebugOutput::explain;
  CHECK(has(worker_environment(p, kPlace, {}), "DLAUNCH_DEBUG=explain"));
}

TEST_CASE("worker environment: a longer --host-timeout holds for libdlring, too") {
  Plan p = plan();
  CHECK_FALSE(times_set(worker_environment(p, kPlace, {}), "DLAUNCH_LINK_TIMEOUT"));
  p.nodes.host_timeout = std::chrono::milliseconds(30500);
  CHECK(has(worker_environment(p, kPlace, {}), "DLAUNCH_LINK_TIMEOUT=31"));
  CHECK(has(worker_environment(p, kPlace, {"DLAUNCH_LINK_TIMEOUT=7"}), "DLAUNCH_LINK_TIMEOUT=7"));
}

TEST_CASE("worker environment: the rack that the leader knows, and none of an outer job") {
  WorkerPlace place = kPlace;
  CHECK_FALSE(times_set(worker_environment(plan(), place, {"DLAUNCH_RACK=a"}), "DLAUNCH_RACK"));
  place.rack = "s0.s1";
  CHECK(has(worker_environment(plan(), place, {"DLAUNCH_RACK=a"}), "DLAUNCH_RACK=s0.s1"));
}

TEST_CASE(
    "worker environment: the GPU of the local rank, and a network for NCCL, where asked for") {
  Plan p = plan();
  auto env = worker_environment(p, kPlace, {"CUDA_VISIBLE_DEVICES=4,5"});
  CHECK(has(env, "CUDA_VISIBLE_DEVICES=4,5"));
  CHECK_FALSE(times_set(env, "NCCL_SOCKET_IFNAME"));
  p.gpus = {"GPU-a"};  // more ranks than GPUs share them
  p.interface = "10.0.0.0/8";
  CHECK_FALSE(times_set(worker_environment(p, kPlace, {}), "NCCL_SOCKET_IFNAME"));
  p.interface = "eth1";
  p.hcas = "mlx5_0,mlx5_1";
  env = worker_environment(p, kPlace, {"CUDA_VISIBLE_DEVICES=4,5"});
  CHECK(has(env, "CUDA_VISIBLE_DEVICES=GPU-a"));
  CHECK(has(env, "NCCL_SOCKET_IFNAME==eth1"));
  CHECK(has(env, "NCCL_IB_HCA==mlx5_0,mlx5_1"));
  env = worker_environment(p, kPlace, {"NCCL_SOCKET_IFNAME=ib0", "NCCL_IB_HCA=^mlx5_0"});
  CHECK(has(env, "NCCL_SOCKET_IFNAME=ib0"));
  CHECK(has(env, "NCCL_IB_HCA=^mlx5_0"));
}

TEST_CASE("two dollars before a macro make one and no macro; elsewhere they stay two") {
  Plan p = plan();
  p.argv = {"train", "$${rank}", "a$$$${host}$", "$$$${rank}", "$$${rank}", "echo $$; $$", "$${x}"};
  p.env = {{"TEMPLATE", "of-$${rank}"}};
  CHECK(worker_arguments(p, kPlace) == std::vector<std::string>{"train", "${rank}", "a$${host}$",
                                                                "$${rank}", "$1", "echo $$; $$",
                                                                "$${x}"});
  CHECK(has(worker_environment(p, kPlace, {}), "TEMPLATE=of-${rank}"));
}

TEST_CASE("the macros of the master are its address and port in that round") {
  Plan p = plan();
  p.argv = {"train", "--at=${master_addr}:${master_port}", "$${master_port}"};
  p.env = {{"JAX_COORDINATOR_ADDRESS", "${master_addr}:${master_port}"}};
  WorkerPlace place = kPlace;
  CHECK(worker_arguments(p, place) ==
        std::vector<std::string>{"train", "--at=127.0.0.1:4711", "${master_port}"});
  CHECK(has(worker_environment(p, place, {}), "JAX_COORDINATOR_ADDRESS=127.0.0.1:4711"));
  place.master_addr = "10.0.0.2";
  place.master_port = 4712;
  CHECK(has(worker_environment(p, place, {}), "JAX_COORDINATOR_ADDRESS=10.0.0.2:4712"));
}

TEST_CASE("an IPv6 master gets brackets only where a port follows") {
  Plan p = plan();
  p.argv = {"${master_addr}:${master_port}", "${master_addr}", "tcp://${master_addr}:1"};
  WorkerPlace place = kPlace;
  place.master_addr = "fd00::2";
  CHECK(worker_arguments(p, place) ==
        std::vector<std::string>{"[fd00::2]:4711", "fd00::2", "tcp://[fd00::2]:1"});
}

TEST_CASE("a folder of packages is the first of PYTHONPATH, whatever else is in it") {
  WorkerPlace place = kPlace;
  place.python_folder = "/job/python";
  CHECK(has(worker_environment(plan(), place, {}), "PYTHONPATH=/job/python"));
  CHECK(
      has(worker_environment(plan(), place, {"PYTHONPATH=/a:/b"}), "PYTHONPATH=/job/python:/a:/b"));
  Plan p = plan();
  p.env = {{"PYTHONPATH", "/c"}};
  CHECK(has(worker_environment(p, place, {"PYTHONPATH=/a"}), "PYTHONPATH=/job/python:/c"));
  CHECK(!times_set(worker_environment(plan(), kPlace, {}), "PYTHONPATH"));
}

TEST_CASE("--role names the role, and --virtual-local-rank makes every local rank 0") {
  Plan p = plan();
  p.role = "trainer";
  p.gpus = {"4", "6"};
  p.virtual_local_rank = true;
  const auto env = worker_environment(p, kPlace, {"HIP_VISIBLE_DEVICES=4,6"});
  for (const char* item : {"ROLE_NAME=trainer", "ROLE_RANK=1", "ROLE_WORLD_SIZE=4", "LOCAL_RANK=0",
                           "CUDA_VISIBLE_DEVICES=6", "HIP_VISIBLE_DEVICES=6", "RANK=override"}) {
    CHECK_MESSAGE(has(env, item), item);
  }
}

TEST_CASE("roles give each rank its name, and its number in its role") {
  Plan p = plan();
  p.roles = {{"worker", 0, 1}, {"ps", 1, 3}};
  const auto env = worker_environment(p, kPlace, {});
  CHECK(has(env, "ROLE_NAME=ps"));
  CHECK(has(env, "ROLE_RANK=0"));
  CHECK(has(env, "ROLE_WORLD_SIZE=3"));
}

TEST_CASE("TF_CONFIG: from the start, at the import, or the user's own") {
  Plan p = plan();
  WorkerPlace place = kPlace;
  place.peers = {"a:1", "a:2", "a:3", "a:4"};
  const std::string config = tf_config({}, 1, place.peers);
  auto env = worker_environment(p, place, {});
  CHECK(has(env, "DLAUNCH_TF_CONFIG=" + config));
  CHECK_FALSE(times_set(env, "TF_CONFIG"));
  p.framework = Framework::tensorflow;
  CHECK(has(worker_environment(p, place, {}), "TF_CONFIG=" + config));
  CHECK(has(worker_environment(p, place, {"TF_CONFIG=own"}), "TF_CONFIG=own"));
  // What dlaunch gave to the worker within which it runs is not the user's.
  env = worker_environment(p, place, {"TF_CONFIG=outer", "DLAUNCH_TF_CONFIG=outer"});
  CHECK(has(env, "TF_CONFIG=" + config));
  p.framework = Framework::none;
  env = worker_environment(p, place, {});
  CHECK_FALSE(times_set(env, "TF_CONFIG"));
  CHECK_FALSE(times_set(env, "DLAUNCH_TF_CONFIG"));
  // A worker that is alone needs no others.
  p.framework = Framework::automatic;
  place.size = 1;
  place.rank = 0;
  place.peers = {"a:1"};
  CHECK_FALSE(times_set(worker_environment(p, place, {}), "DLAUNCH_TF_CONFIG"));
}

TEST_CASE(
    "a time-out for hangs switches PyTorch's Flight Recorder on; a user's own choice stands") {
  CHECK_FALSE(times_set(worker_environment(plan(), kPlace, {}), "TORCH_FR_BUFFER_SIZE"));
  Plan watched = plan();
  watched.hang_timeout = std::chrono::seconds(60);
  WorkerPlace place = kPlace;
  place.round_dir = "/tmp/job/2";
  const auto env = worker_environment(watched, place, {"TORCH_FR_BUFFER_SIZE=9"});
  CHECK(has(env, "TORCH_FR_BUFFER_SIZE=9"));
  CHECK(has(env, "TORCH_FR_DUMP_TEMP_FILE=/tmp/job/dlaunch_torch_dump."));
  CHECK(has(env, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/job/dlaunch_torch_pipe."));

  const auto older = worker_environment(
      watched, place,
      {"TORCH_NCCL_TRACE_BUFFER_SIZE=0", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/own/dump."});
  CHECK_FALSE(times_set(older, "TORCH_FR_BUFFER_SIZE"));
  CHECK_FALSE(times_set(older, "TORCH_FR_DUMP_TEMP_FILE"));
}

TEST_CASE("a job that a worker starts does not use the outer job's files of the Flight Recorder") {
  const std::vector<std::string> outer = {
      "TORCH_FR_DUMP_TEMP_FILE=/tmp/outer/dlaunch_torch_dump.",
      "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/outer/dlaunch_torch_pipe."};
  const auto unwatched = worker_environment(plan(), kPlace, outer);
  CHECK_FALSE(times_set(unwatched, "TORCH_FR_DUMP_TEMP_FILE"));
  CHECK_FALSE(times_set(unwatched, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"));
  Plan watched = plan();
  watched.hang_timeout = std::chrono::seconds(60);
  WorkerPlace place = kPlace;
  place.round_dir = "/tmp/job/2";
  CHECK(has(worker_environment(watched, place, outer),
            "TORCH_FR_DUMP_TEMP_FILE=/tmp/job/dlaunch_torch_dump."));
}

TEST_CASE("a worker gets the descriptor for heartbeats, and not that of an outer job") {
  WorkerPlace place = kPlace;
  place.heartbeat_fd = 7;
  const auto env =
      worker_environment(plan(), place, {"DLAUNCH_HEARTBEAT_FD=8", "DLAUNCH_HEARTBEAT_PIPE=4711"});
  CHECK(has(env, "DLAUNCH_HEARTBEAT_FD=7"));
  CHECK_FALSE(times_set(env, "DLAUNCH_HEARTBEAT_PIPE"));
}

TEST_CASE("NCCL gets our profiler plug-in, unless the user has one or wants no record") {
  const std::string kOurs = "NCCL_PROFILER_PLUGIN=/usr/lib/dlaunch/libnccl-profiler-dlaunch.so";
  WorkerPlace place = kPlace;
  place.nccl_profiler = "/usr/lib/dlaunch/libnccl-profiler-dlaunch.so";
  place.round_dir = "/tmp/job/1";
  CHECK(has(worker_environment(plan(), place, {}), kOurs));
  CHECK_FALSE(times_set(worker_environment(plan(), place, {}), "DLAUNCH_NCCL_KERNELS"));
  CHECK(has(worker_environment(plan(), place, {"NCCL_PROFILER_PLUGIN=none"}),
            "NCCL_PROFILER_PLUGIN=none"));
  Plan kernels = plan();
  kernels.nccl_record = NcclRecord::kernels;
  CHECK(has(worker_environment(kernels, place, {}), "DLAUNCH_NCCL_KERNELS=1"));
  // What an enclosing job has set does not count as the user's own.
  Plan off = plan();
  off.nccl_record = NcclRecord::off;
  const std::vector<std::string> outer = {"NCCL_PROFILER_PLUGIN=/opt/libnccl-profiler-dlaunch.so",
                                          "DLAUNCH_NCCL_KERNELS=1"};
  CHECK_FALSE(times_set(worker_environment(off, place, outer), "NCCL_PROFILER_PLUGIN"));
  CHECK_FALSE(times_set(worker_environment(plan(), place, outer), "DLAUNCH_NCCL_KERNELS"));
  CHECK(has(worker_environment(plan(), place, outer), kOurs));
  place.nccl_profiler = "";  // it is not installed
  CHECK_FALSE(times_set(worker_environment(plan(), place, {}), "NCCL_PROFILER_PLUGIN"));
  place.nccl_profiler = "/" + std::string(300, 'x');
  CHECK_FALSE(times_set(worker_environment(plan(), place, {}), "NCCL_PROFILER_PLUGIN"));
}

TEST_CASE("workers get the sites of the training, and not those of an outer job") {
  const std::vector<std::string> outer = {"DLAUNCH_SITES=x=h:1,y=h:2", "DLAUNCH_SITE=x",
                                          "DLAUNCH_SITE_JOURNAL=/old"};
  CHECK_FALSE(times_set(worker_environment(plan(), kPlace, outer), "DLAUNCH_SITES"));
  Plan with_sites = plan();
  with_sites.sites = {.list = *parse_site_list("a=h:1,b=h:2"), .own = "b"};
  with_sites.sites.grace = std::chrono::milliseconds(1500);
  const auto env = worker_environment(with_sites, kPlace, outer);
  CHECK(has(env, "DLAUNCH_SITES=a=h:1,b=h:2"));
  CHECK(has(env, "DLAUNCH_SITE=b"));
  CHECK(has(env, "DLAUNCH_SITE_GRACE=1500ms"));
  CHECK(has(env, "DLAUNCH_SITE_TIMEOUT=5000ms"));
  CHECK(has(env, "DLAUNCH_SITE_WAIT=1800000ms"));
  CHECK(has(env, "DLAUNCH_SITE_LINGER=60000ms"));
  CHECK_FALSE(times_set(env, "DLAUNCH_SITE_JOURNAL"));
  with_sites.sites.journal = "/j";
  CHECK(has(worker_environment(with_sites, kPlace, outer), "DLAUNCH_SITE_JOURNAL=/j"));
}
