#include "launcher/lead/start/ssh_talk.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "launcher/lead/start/ssh_login.h"
#include "launcher/plan/host_shares.h"

using namespace dlaunch;

namespace {

using Words = std::vector<std::string>;

std::vector<int> shares(std::string_view list, std::optional<int> per_host,
                        std::optional<int> total) {
  auto hosts = parse_hostfile(list, "hosts");
  REQUIRE(hosts);
  auto found = share_out(*hosts, per_host, total);
  return found ? *found : std::vector<int>{};
}

template <class Action>
const Action* only(const std::vector<SshTalk::Action>& actions) {
  REQUIRE(actions.size() == 1);
  return std::get_if<Action>(&actions.front());
}

SameBinary binary(const std::string& path) {
  return {path, 1000, std::string("\0\n\xff\x61", 4), 40};
}

}  // namespace

TEST_CASE("workers are divided by slots, by a number for each host, or in total") {
  const char* list = "a:2\nb slots=3 max_slots=4\nc\n";
  CHECK(shares(list, {}, {}) == std::vector{2, 3, 1});
  CHECK(shares(list, 4, {}) == std::vector{4, 4, 4});
  CHECK(shares(list, 5, {}).empty());  // max_slots
  CHECK(shares(list, {}, 1) == std::vector{1, 0, 0});
  CHECK(shares(list, {}, 4) == std::vector{2, 2, 0});
  CHECK(shares(list, {}, 6) == std::vector{2, 3, 1});
  CHECK(shares(list, {}, 11) == std::vector{4, 4, 3});  // beyond the slots: in turn, b is full
  CHECK(shares(list, 2, 3) == std::vector{2, 1, 0});
  CHECK(shares(list, 2, 7).empty());
  CHECK(shares("a slots=1 max_slots=1\n", {}, 2).empty());
}

TEST_CASE("ssh gets the user's options first, and no secrets") {
  const HostPlan host{.name = "h", .user = "joe", .port = 2222, .nproc = 1};
  const auto words = ssh_arguments({"ssh", "-i", "key"}, host, binary("/opt/d'x/dlaunch"), 345);
  CHECK(Words(words.begin(), words.begin() + 5) ==
        Words{"ssh", "-i", "key", "-o", "BatchMode=yes"});
  CHECK(Words(words.end() - 7, words.end() - 1) == Words{"-p", "2222", "-l", "joe", "--", "h"});
  CHECK(words.back().starts_with("exec sh -c 'p=$1 n=$2 o=$3 "));
  CHECK(words.back().ends_with("' sh '/opt/d'\\''x/dlaunch' 1000 345 1040 4 '00 0a ff 61'"));
  CHECK(words.back().find('\n') == std::string::npos);
}

TEST_CASE("ssh gets a connection only if the configuration does not say how to connect") {
  const std::string plain =
      "user root\nhostname 10.0.0.7\nport 22\naddressfamily any\nproxyusefdpass no\n"
      "tcpkeepalive yes\nconnecttimeout 10\n";
  CHECK(plain_connection(plain) == 10);
  for (const char* more :
       {"proxycommand nc %h %p", "proxycommand none", "permitlocalcommand yes", "proxyjump gate",
        "bindaddress 10.0.0.1", "controlpath /tmp/%C", "checkhostip yes", "verifyhostkeydns ask",
        "canonicalizehostname true"}) {
    CHECK(plain_connection(plain + more + "\n") == 0);
  }
  CHECK(plain_connection("") == 0);
  CHECK(plain_connection("Usage: ssh [-a] host\n\n \n") == 0);
  CHECK(plain_connection("hostname a\nport 22\nconnecttimeout none\n") == 0);
  CHECK(plain_connection("hostname a\nport 22\naddressfamily inet\nconnecttimeout 10") == 0);

  const auto target = target_for_others(plain);
  REQUIRE(target);
  CHECK((target->host == "10.0.0.7" && target->user == "root" && target->port == 22));
  CHECK_FALSE(target_for_others(plain + "proxyjump gate\n"));
  CHECK_FALSE(target_for_others("hostname a\nport 22\nconnecttimeout 10\n"));
  for (const char* here : {"localhost", "localhost.localdomain", "127.0.1.1", "::1"}) {
    CHECK_FALSE(
        target_for_others(fmt::format("user u\nhostname {}\nport 22\nconnecttimeout 10\n", here)));
  }

  const Words ssh = {"ssh", "-F", "f", "--", "h", "exec sh"};
  CHECK(asking_for_config("/bin/ssh", ssh) ==
        Words{"/bin/ssh", "-G", "-F", "f", "--", "h", "exec sh"});
  CHECK(with_own_connection(ssh, "/a%b/d l", 7) ==
        Words{"ssh", "-o", "ProxyCommand='/a%%b/d l' --ssh-connect %h %p 7", "-o",
              "ProxyUseFdpass=yes", "-F", "f", "--", "h", "exec sh"});
}

TEST_CASE("only a program of its name is taken for ssh") {
  char folder[] = "/tmp/dlaunch-ssh-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const auto with = [&](const std::string& name, const char* start, mode_t mode) {
    const std::string path = std::string(folder) + "/" + name;
    std::ofstream(path) << start;
    ::chmod(path.c_str(), mode);
    const bool taken = is_ssh(path);
    ::unlink(path.c_str());
    return taken;
  };
  CHECK(with("ssh",
             "\x7f"
             "ELF and more",
             0755));
  CHECK_FALSE(with("gsissh",
                   "\x7f"
                   "ELF and more",
                   0755));
  CHECK_FALSE(with("ssh",
                   "\x7f"
                   "ELF and more",
                   0644));
  CHECK_FALSE(with("ssh", "#!/bin/sh\nssh \"$@\"\n", 0755));
  CHECK_FALSE(with("ssh", "", 0755));
  CHECK_FALSE(is_ssh(std::string(folder) + "/ssh"));
  ::rmdir(folder);
}

TEST_CASE("without a build ID no file is the same") {
  const auto words = ssh_arguments({"ssh"}, {.name = "h"}, {"/d", 1000, "", 0}, 345);
  CHECK(words.back().ends_with("' sh /d 1000 345 1000 0 none"));
}

TEST_CASE("an order is read as it was written, and malformed ones are refused") {
  const OrderFrame frame{"secret", "10.0.0.1:4000", 3, 2, 5, true, std::string("a\0b", 3)};
  const std::string bytes = encode(frame).substr(4);
  const auto back = decode_order_frame(bytes);
  REQUIRE(back);
  CHECK((back->secret == frame.secret && back->endpoint == frame.endpoint));
  CHECK((back->number == 3 && back->nproc == 2 && back->login == 5 && back->order == frame.order));
  CHECK(back->calls);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_order_frame(std::string_view(bytes).substr(0, size)));
  }
  CHECK_FALSE(decode_order_frame(bytes + "x"));
}

TEST_CASE("a start: output of login scripts is skipped, and later bytes are kept") {
  SshTalk talk;
  CHECK(talk.heard("Welcome!\ndlaunch-s").empty());
  CHECK(talk.heard("sh here\n").empty());  // it has its order already
  const auto ready = talk.heard(ready_line() + "[0] fi");
  CHECK(only<SshTalk::Ready>(ready)->begun == "[0] fi");
}

TEST_CASE("after a push of the binary the order is sent again") {
  SshTalk talk;
  CHECK(only<SshTalk::Push>(talk.heard("dlaunch-ssh push\n")));
  CHECK(only<SshTalk::Order>(talk.heard(here_line())));
  CHECK(only<SshTalk::Ready>(talk.heard(ready_line())));
  // A login script that does not end its line.
  CHECK(only<SshTalk::Push>(SshTalk().heard("Welcome dlaunch-ssh push\n")));
  CHECK(only<SshTalk::Failed>(SshTalk().heard("\x1b]0;h\adlaunch-ssh error 73 no room\n")));
}

TEST_CASE("a failure has the message with the most detail") {
  SshTalk refused;
  const auto actions = refused.heard(error_line(127, "exec 'x':\nno"));
  CHECK(only<SshTalk::Failed>(actions)->exit_code == 127);
  CHECK(only<SshTalk::Failed>(actions)->what == "exec 'x':\\x0ano");
  SshTalk denied;
  CHECK(denied.heard("This is h.\n").empty());
  denied.said("Warning: x\r\njoe@h: Permission denied (publickey).\r\n\n");
  CHECK(denied.ended("ended with exit code 255").what == "joe@h: Permission denied (publickey).");
  CHECK(denied.ended("").exit_code == 69);
  SshTalk unreached;
  unreached.said("a banner\nssh: connect to host h port 22: Connection refused\n");
  unreached.said("mm_receive_fd: recvmsg: expected received 1 got 0\r\n");
  unreached.said("proxy dialer did not pass back a connection\r\n");
  CHECK(unreached.ended("").what == "ssh: connect to host h port 22: Connection refused");
  SshTalk banner;
  banner.said("ssh: agent is not running\nbash: line 1: exec: sh: not found\n");
  CHECK(banner.ended("").what == "bash: line 1: exec: sh: not found");
  SshTalk silent;
  silent.said("proxy dialer did not pass back a connection\n");
  CHECK(silent.ended("").what == "proxy dialer did not pass back a connection");
  SshTalk nologin;
  CHECK(nologin.heard("This account is not available.").empty());
  CHECK(nologin.ended("").what == "This account is not available.");
  CHECK(SshTalk().ended("ended with exit code 3").what ==
        "ssh ended with exit code 3 without a word");
}

TEST_CASE("one table for all hosts, in their order; the first one's exit code") {
  const std::vector<HostPlan> hosts = {{.name = "a"}, {.name = "node10"}, {.name = "c"}};
  const std::vector<HostFailure> failures = {{2, 69, "refused"}, {1, 127, "no program"}};
  CHECK(failure_table(failures, hosts) ==
        Words{"cannot start on 2 of 3 hosts:", "  node10  no program", "  c       refused"});
  CHECK(exit_code_of(failures) == 127);
}

TEST_CASE("login failures: a host's newest login counts") {
  LoginFailures failures;
  failures.failed({1, 69, "kex_exchange_identification: connection reset"});
  failures.failed({3, 69, "refused"});
  failures.ready(1);
  CHECK(failure_table(failures.all(), {{.name = "a"}, {}, {}, {.name = "d"}}) ==
        Words{"cannot start on 1 of 4 hosts:", "  d  refused"});
  failures.failed({3, 127, "no program"});
  REQUIRE(failures.all().size() == 1);
  CHECK(failures.all()[0].what == "no program");
}

TEST_CASE("srun: a step on one node, with all of it, without options for other tasks") {
  const HostPlan host{.name = "n7", .nproc = 2, .cpus = 16};
  const auto words = srun_arguments(host, binary("/opt/dlaunch"), 345);
  CHECK(words.front() == "srun");
  for (const char* word : {"--nodelist=n7", "--nodes=1", "--ntasks=1", "--cpus-per-task=16",
                           "--cpu-bind=none", "--overlap"}) {
    CHECK(std::find(words.begin(), words.end(), word) != words.end());
  }
  CHECK(Words(words.end() - 6, words.end()) ==
        Words{"/opt/dlaunch", "1000", "345", "1040", "4", "00 0a ff 61"});
  CHECK(asks_srun("SLURM_NTASKS_PER_NODE=8"));
  CHECK(asks_srun("SLURM_GPUS_PER_TASK=1"));
  CHECK(asks_srun("SRUN_CPUS_PER_TASK=1"));
  CHECK_FALSE(asks_srun("SLURM_JOB_ID=7"));
  CHECK_FALSE(asks_srun("SLURM_CONF=/etc/slurm.conf"));
  CHECK_FALSE(asks_srun("SLURM_ARRAY_TASK_ID=7"));
  CHECK_FALSE(asks_srun("PATH=/bin"));
  CHECK(SshTalk("srun").ended("ended with exit code 1").what ==
        "srun ended with exit code 1 without a word");
}

TEST_CASE("blaunch: words that a shell does not change") {
  const HostPlan host{.name = "n7", .nproc = 2};
  CHECK(*plain_arguments({"qrsh", "-inherit"}, host, binary("/opt/dlaunch")) ==
        Words{"qrsh", "-inherit", "n7", "/opt/dlaunch", "--ssh-node"});
  CHECK(*plain_arguments({"blaunch"}, host, binary("/opt/v1.2/bin/dlaunch")) ==
        Words{"blaunch", "n7", "/opt/v1.2/bin/dlaunch", "--ssh-node"});
  const auto refused = plain_arguments({"blaunch"}, host, binary("/my apps/dlaunch"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what ==
        "blaunch cannot start dlaunch from the path '/my apps/dlaunch': move it, or say "
        "--ssh-command ssh");
}

TEST_CASE("flux: on the broker of the host") {
  const HostPlan host{.name = "n7", .nproc = 2, .place = 3};
  CHECK(flux_arguments(host, binary("/my apps/dlaunch")) ==
        Words{"flux", "exec", "--rank=3", "--dir=/", "/my apps/dlaunch", "--ssh-node"});
}
