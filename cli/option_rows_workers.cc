// The rows of the option table: the workers: their number, program, environment and placement.
#include "cli/option_rows.h"
#include "launcher/plan/plan.h"

namespace dlaunch {
namespace {

constexpr OptionRow kWorkersRows[] = {
    {"nproc", "",
     "nproc-per-node ppn perhost npernode ntasks-per-node tasks-per-node num-gpus num-accelerators",
     "N|auto|gpu|numa|socket|core|xpu", "1", Group::workers,
     "How many workers start on each host: a number, or one for each usable CPU (auto or cpu), "
     "GPU, NUMA node, socket, L3 cache (l3) or core. 2:numa means two for each. xpu, hpu, npu, mlu "
     "and musa count other makers' accelerators",
     &Options::nproc, kCommon},
    {"np", "n", "ntasks num-proc num-processes", "N", "", Group::workers,
     "How many workers start in total, as in mpirun. dlaunch fills the hosts in their order; on "
     "one machine this is the same as --nproc",
     &Options::np, kCommon},
    {"multi-gpu", "", "", "", "", Group::workers,
     "If no other option gives the number of workers, start one for each GPU", &Options::multi_gpu,
     kHidden},
    {"env", "x", "", "NAME[=VALUE]", "", Group::workers,
     "Set a variable for the workers, or pass on the value that dlaunch has. You can repeat this "
     "option",
     &Options::env, kCommon | kNoEnv},
    {"chdir", "", "wdir workdir cwd D", "DIR", "", Group::workers,
     "Start the workers in this folder", &Options::chdir},
    {"app", "", "", "FILE", "", Group::workers,
     "Run the programs in this file in one job, each on its own ranks. A line is '-np N [-x "
     "NAME=VALUE] [--chdir DIR] PROGRAM [ARGUMENT ...]', as between the ':' of a command line",
     &Options::app},
    {"multi-prog", "", "", "", "", Group::workers,
     "The program is a file that says which ranks run what, as for srun: '0-3,5 PROGRAM "
     "[ARGUMENT ...]', or '*' for the other ranks",
     &Options::multi_prog, kNoEnv | kNoFile},
    {"module", "m", "", "", "", Group::workers,
     "The program is a Python module: run it with python3 -m, or with $PYTHON_EXEC",
     &Options::module, kCommon | kNoEnv | kNoFile},
    {"run-path", "", "", "", "", Group::workers,
     "The program is a Python script, whatever its name and mode: run it with python3, or with "
     "$PYTHON_EXEC",
     &Options::run_path, kNoEnv | kNoFile},
    {"role", "", "", "NAME", "default", Group::workers, "The workers' ROLE_NAME", &Options::role},
    {"roles", "", "", "NAME[=N],...", "", Group::workers,
     "Give ranks roles, in this order: chief,worker=3,ps=2. This sets ROLE_NAME, ROLE_RANK and "
     "TF_CONFIG, and the number of workers. A job with a chief and parameter servers ends when the "
     "chief and the evaluators have ended. Any other job ends when all ranks except the parameter "
     "servers have ended",
     &Options::roles},
    {"framework", "", "", kChoices<kFrameworkWords>, "auto", Group::workers,
     "Give each worker a TF_CONFIG with the addresses of all: when it imports TensorFlow (auto), "
     "from its start (tensorflow), or never (none). A TF_CONFIG of your own stays",
     &Options::framework},
    {"horovod", "", "", "", "", Group::workers,
     "Programs that import Horovod get the package dlaunch in its place: import horovod.torch is "
     "dlaunch.horovod.torch. The workers' Python must have that package",
     &Options::horovod},
    {"no-python", "", "", "", "", Group::workers,
     "Never put python3 before the program, not even before a file.py that cannot be executed",
     &Options::no_python},
    {"bind", "", "bind-to", kChoices<kBindWords>, "none", Group::placement,
     "Give each worker its own share of the cores, in whole objects of this kind. gpu means "
     "the cores near the GPU of the worker's local rank",
     &Options::bind, kCommon},
    {"report-bindings", "", "", "", "", Group::placement, "Draw which worker runs on which core",
     &Options::report_bindings},
    {"isolate-gpus", "", "", "", "", Group::placement,
     "Let each worker see only the GPU of its local rank, by CUDA_VISIBLE_DEVICES",
     &Options::isolate_gpus},
    {"virtual-local-rank", "", "", "", "", Group::placement,
     "Like --isolate-gpus; and each worker's LOCAL_RANK is 0, the number of the only GPU that "
     "it sees",
     &Options::virtual_local_rank},
    {"numa-binding", "", "", "node|socket|core-complex|exclusive", "", Group::placement,
     "Bind workers as torchrun does. node and exclusive mean --bind gpu; without GPUs they "
     "mean numa and core. socket means --bind socket, and core-complex means --bind l3",
     &Options::numa_binding},
    {"omp-threads", "", "num-cpu-threads-per-process", "auto|keep|N", "auto", Group::placement,
     "The workers' OMP_NUM_THREADS: their share of the usable CPUs (auto), the value that is "
     "set already (keep), or a number. Without this option dlaunch keeps a value that is set",
     &Options::omp_threads},
};

}  // namespace

std::span<const OptionRow> workers_rows() { return kWorkersRows; }

}  // namespace dlaunch
