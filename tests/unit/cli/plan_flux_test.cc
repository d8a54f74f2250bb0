#include "cli/plan_flux.h"

#include <doctest/doctest.h>

#include "cli/plan_slurm.h"
#include "cli/ssh_order.h"
#include "tests/unit/cli/fake_machine.h"

using namespace dlaunch;

namespace {

using Variables = std::map<std::string, std::string>;

// flux run -N3 -n3, on its second host.
const Variables kFluxStep = {{"FLUX_JOB_ID", "\u01922WpHZ5J"},
                             {"FLUX_JOB_SIZE", "3"},
                             {"FLUX_JOB_NNODES", "3"},
                             {"FLUX_TASK_RANK", "1"},
                             {"FLUX_TASK_LOCAL_ID", "0"},
                             {"FLUX_URI", "local:///run/flux/local"},
                             {"HOME", "/home/u"},
                             {"PMI_RANK", "1"}};
const std::string kFluxJobs = "jobs --no-header --format={nodelist} \u01922WpHZ5J";

FakeMachine in_flux(const Variables& variables, const Variables& others = {}) {
  FakeMachine fake;
  fake.env = variables;
  for (const auto& [name, value] : others) fake.env[name] = value;
  fake.flux = {{kFluxJobs, "here,n[2-3]\n"}, {"getattr hostlist", "here,n[2-3]\n"}};
  return fake;
}

std::string places_in(const Plan& plan) {
  std::string text;
  for (const auto& host : plan.nodes.hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.nproc) + "@" +
            std::to_string(host.place) + (host.leads ? "*" : "");
  }
  return text;
}

}  // namespace

TEST_CASE("flux run: one dlaunch on each host, which know who leads and where") {
  const Plan second = in_flux(kFluxStep).plan({"--nproc", "2", "p"});
  CHECK((second.nodes.rank == 1 && second.nodes.max == 3 && second.nproc == 2));
  CHECK((second.nodes.step == NodesPlan::Step::flux && second.nodes.signalled_by_all()));
  CHECK_FALSE(second.nodes.steps_signal_workers());
  CHECK(second.job_id == "flux-f2WpHZ5J");
  CHECK(second.key_file == "/home/u/.dlaunch/key");
  const Plan first = in_flux(kFluxStep, {{"FLUX_TASK_RANK", "0"}}).plan({"p"});
  CHECK(first.nodes.lead == NodesPlan::Lead::yes);
  CHECK(first.store_listen.starts_with("10.0.0.1:"));
  CHECK(first.nodes.endpoint == second.nodes.endpoint);
  const auto place = read_flux(in_flux(kFluxStep).machine().environment,
                               [](const auto&) { return Result<std::string>("a,b,c"); });
  REQUIRE((place && *place));
  CHECK(((*place)->port >= kSlurmPorts && (*place)->port < kSlurmPorts + kSlurmPortCount));
  // The options win.
  CHECK(in_flux(kFluxStep).plan({"--rdzv", "tcp://n9:7", "--job-id", "j", "p"}).job_id == "j");
  CHECK_FALSE(in_flux(kFluxStep).plan({"--standalone", "p"}).nodes.several());
}

TEST_CASE("flux run: on one host it is a job here, and flux is not asked") {
  FakeMachine fake = in_flux(
      kFluxStep, {{"FLUX_JOB_SIZE", "1"}, {"FLUX_JOB_NNODES", "1"}, {"FLUX_TASK_RANK", "0"}});
  fake.flux.clear();
  CHECK_FALSE(fake.plan({"p"}).nodes.several());
  CHECK(fake.plan({"p"}).job_id == "flux-f2WpHZ5J");
}

TEST_CASE("flux batch: the hosts of the instance are started by flux exec, one worker on each") {
  FakeMachine fake = in_flux({{"FLUX_URI", "local:///tmp/flux-x/local-0"}, {"LR", "1"}});
  const Plan plan = fake.plan({"p"});
  CHECK(places_in(plan) == "here:1@0* n2:1@1 n3:1@2");
  CHECK((plan.nodes.starter == Starter::flux && plan.nodes.ssh == Words{"flux"}));
  const auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  CHECK(order->environment == Words{"LR=1"});  // each broker has an address of its own
  CHECK(places_in(fake.plan({"--nproc", "8", "--exclude", "n2", "p"})) == "here:8@0* n3:8@2");
  CHECK(fake.plan({"--ssh-command", "ssh", "p"}).nodes.starter == Starter::ssh);
  CHECK_FALSE(fake.plan({"--standalone", "p"}).nodes.several());
}

TEST_CASE("flux: what cannot work is refused in one line") {
  CHECK(in_flux(kFluxStep, {{"FLUX_JOB_SIZE", "24"}})
            .refused({"p"})
            .starts_with("64 Flux started 24 dlaunch on 3 hosts, and each host needs one, which "
                         "starts the workers: "
                         "say flux run -N3 -n3"));
  CHECK(in_flux(kFluxStep, {{"FLUX_JOB_NNODES", "x"}})
            .refused({"p"})
            .starts_with("64 FLUX_JOB_NNODES: 'x' is not"));
  FakeMachine fake = in_flux(kFluxStep);
  fake.flux[kFluxJobs] = "here\n";
  CHECK(fake.refused({"p"}) ==
        "64 Flux: FLUX_TASK_RANK 1 does not number one of the 1 hosts that flux jobs lists");
  fake.flux[kFluxJobs] = "";
  CHECK(fake.refused({"p"}) == "64 Flux: '' is no list of hosts; give --standalone, or --hosts");
  fake.flux.clear();
  CHECK(fake.refused({"p"}) == "64 flux " + kFluxJobs +
                                   " ended with exit code 1: no broker; give --standalone, or "
                                   "--hosts");
}
