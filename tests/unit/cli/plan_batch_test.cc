#include "cli/plan_batch.h"

#include <doctest/doctest.h>

#include "cli/ssh_order.h"
#include "tests/unit/cli/fake_machine.h"

using namespace dlaunch;

namespace {

using Variables = std::map<std::string, std::string>;

// qsub -l select=1:ncpus=2:mpiprocs=2+2:ncpus=1, on its first host; with others left out.
const Variables kPbs = {{"PBS_ENVIRONMENT", "PBS_BATCH"},
                        {"PBS_JOBID", "7.server"},
                        {"PBS_JOBCOOKIE", "00000000207DB83E000000005275737E"},
                        {"PBS_NODEFILE", "/var/spool/pbs/aux/7.server"},
                        {"PBS_TASKNUM", "1"},
                        {"PBS_NODENUM", "0"},
                        {"PBS_MOMPORT", "15003"},
                        {"NCPUS", "2"}};
// bsub -n 5 -R "span[ptile=2]"
const Variables kLsf = {{"LSB_JOBID", "8"},
                        {"LSB_HOSTS", "here here n2 n2 n3"},
                        {"LSB_MCPU_HOSTS", "here 2 n2 2 n3 1 "},
                        {"LSB_DJOB_HOSTFILE", "/home/u/.lsbatch/8.hostfile"}};

FakeMachine machine(const Variables& variables, const Variables& others = {}) {
  FakeMachine fake;
  fake.env = variables;
  for (const auto& [name, value] : others) fake.env[name] = value;
  fake.files = {{"/var/spool/pbs/aux/7.server", "here\nhere\nn2\nn3.cluster\n"},
                {"/home/u/.lsbatch/8.hostfile", "here\nn4\nn4\n"},
                {"empty", ""}};
  return fake;
}

}  // namespace

TEST_CASE("pbs: the node file has the hosts, a line for each process, and pbsdsh starts them") {
  FakeMachine fake = machine(kPbs, {{"LR", "0.1"}, {"CUDA_VISIBLE_DEVICES", "0"}});
  const Plan plan = fake.plan({"p"});
  CHECK(hosts_of(plan) == "here:2* n2:1 n3.cluster:1");
  CHECK((plan.nodes.starter == Starter::pbsdsh && plan.nodes.ssh == Words{"pbsdsh"}));
  CHECK(plan.nodes.signalled_by_all());
  CHECK(hosts_of(fake.plan({"--nproc", "4", "p"})) == "here:4* n2:4 n3.cluster:4");
  CHECK(hosts_of(fake.plan({"-n", "3", "p"})) == "here:2* n2:1");
  const auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  // What the host has of its own stays: its devices, and its place among the job's tasks.
  CHECK(order->by_scheduler);
  CHECK(order->environment == Words{"LR=0.1", "NCPUS=2", "PBS_ENVIRONMENT=PBS_BATCH",
                                    "PBS_JOBCOOKIE=00000000207DB83E000000005275737E",
                                    "PBS_JOBID=7.server",
                                    "PBS_NODEFILE=/var/spool/pbs/aux/7.server"});
}

TEST_CASE("pbs: one host is a job here, with its processes") {
  FakeMachine fake = machine(kPbs);
  fake.files["/var/spool/pbs/aux/7.server"] = "here\nhere\nhere\n";
  fake.env.erase("PBS_JOBCOOKIE");
  CHECK((!fake.plan({"p"}).nodes.several() && fake.plan({"p"}).nproc == 3));
}

TEST_CASE("lsf: hosts with counts, or a host for each slot") {
  CHECK(hosts_of(machine(kLsf).plan({"p"})) == "here:2* n2:2 n3:1");
  CHECK(machine(kLsf).plan({"p"}).nodes.starter == Starter::blaunch);
  CHECK(hosts_of(machine(kLsf, {{"LSB_MCPU_HOSTS", ""}}).plan({"p"})) == "here:1* n4:2");
  CHECK(hosts_of(machine(kLsf, {{"LSB_MCPU_HOSTS", ""}, {"LSB_DJOB_HOSTFILE", ""}}).plan({"p"})) ==
        "here:2* n2:2 n3:1");
}

TEST_CASE("grid engine: a line for each host, with its slots") {
  const Variables job = {{"SGE_ROOT", "/sge"}, {"JOB_ID", "9"}, {"PE_HOSTFILE", "pe"}};
  FakeMachine fake = machine(job);
  fake.files["pe"] = "here 2 all.q@here UNDEFINED\nn2 3 all.q@n2 UNDEFINED\n";
  CHECK(hosts_of(fake.plan({"p"})) == "here:2* n2:3");
  CHECK(fake.plan({"p"}).nodes.starter == Starter::qrsh);
  fake.files["pe"] = "here\n";
  CHECK(fake.refused({"p"}).starts_with("64 PE_HOSTFILE: "));
  CHECK(machine(job).refused({"p"}).starts_with("66 PE_HOSTFILE: read pe: No such file"));
  fake.env.erase("SGE_ROOT");
  CHECK_FALSE(fake.plan({"p"}).nodes.several());
}

TEST_CASE("one variable alone is not a job; in a worker, or with own options, it is ignored") {
  for (const Variables& alone :
       {Variables{{"PBS_JOBID", "7"}}, Variables{{"PBS_NODEFILE", "f"}},
        Variables{{"LSB_JOBID", "8"}}, Variables{{"LSB_MCPU_HOSTS", "n2 1"}}}) {
    CHECK_FALSE(machine(alone).plan({"p"}).nodes.several());
  }
  FakeMachine fake = machine(kPbs);
  CHECK_FALSE(fake.plan({"--standalone", "p"}).nodes.several());
  CHECK_FALSE(fake.plan({"--nnodes", "1", "p"}).nodes.several());
  CHECK(hosts_of(fake.plan({"--hosts", "here,n9", "p"})) == "here:1* n9:1");
  CHECK(fake.plan({"--hosts", "here,n9", "p"}).nodes.starter == Starter::ssh);
  const Plan by_ssh = fake.plan({"--ssh-command", "ssh -x", "--ssh-port", "23", "p"});
  CHECK((by_ssh.nodes.starter == Starter::ssh && by_ssh.nodes.ssh == Words{"ssh", "-x"}));
  CHECK(hosts_of(by_ssh) == "here:2* n2:1 n3.cluster:1");
  const Plan by_hand =
      fake.plan({"--nnodes", "2", "--node-rank", "0", "--rdzv", "tcp://here:1", "p"});
  CHECK((by_hand.nodes.hosts.empty() && by_hand.nodes.max == 2));
  CHECK_FALSE(machine(kPbs, {{"DLAUNCH_ROUND", "1"}}).plan({"p"}).nodes.several());
}

TEST_CASE("an impossible setting is refused in one line") {
  const auto refused = [](const Variables& variables, const Variables& others,
                          const Words& words = {"p"}) {
    return machine(variables, others).refused(words);
  };
  CHECK(refused(kPbs, {{"PBS_NODEFILE", "gone"}}) ==
        "66 PBS_NODEFILE: read gone: No such file or directory; give --standalone, or --hosts");
  CHECK(refused(kPbs, {{"PBS_NODEFILE", "empty"}}) ==
        "65 PBS_NODEFILE: empty:1: no host in this file");
  CHECK(refused(kPbs, {{"PBS_JOBCOOKIE", ""}}).starts_with("64 PBS: PBS_JOBCOOKIE is not set"));
  CHECK(refused(kPbs, {{"PBS_TASKNUM", "20000003"}})
            .starts_with("64 PBS started this dlaunch as task 20000003 of the job, by pbsdsh"));
  for (const char* bad : {"here", "here 2 n2", "here x", "here 0", "a[1 2"}) {
    CHECK(refused(kLsf, {{"LSB_MCPU_HOSTS", bad}}).starts_with("64 LSB_MCPU_HOSTS: "));
  }
  CHECK(refused(kLsf, {{"LSB_MCPU_HOSTS", ""}, {"LSB_DJOB_HOSTFILE", "gone"}})
            .starts_with("66 LSB_DJOB_HOSTFILE: read gone: No such file"));
  CHECK(refused(kPbs, {}, {"--ssh-port", "23", "p"}) ==
        "64 --ssh-port has no effect: pbsdsh starts the hosts that PBS_NODEFILE names, unless "
        "--ssh-command is given");
}
