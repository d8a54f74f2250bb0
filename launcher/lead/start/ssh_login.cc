#include "launcher/lead/start/ssh_login.h"

#include <elf.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "base/address.h"
#include "base/endpoint.h"
#include "base/exit_code.h"
#include "base/passed_descriptors.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/units.h"
#include "launcher/process/command.h"
#include "launcher/process/own_binary.h"

namespace dlaunch {
namespace {

constexpr int kSshFailed = 255;  // ssh's own exit code
constexpr int kMaxSeconds = 3600;
constexpr Duration kConfigLimit = std::chrono::seconds(2);

// Settings that influence how ssh connects, or how it uses the address, each with the value that
// has no influence. Settings that are not listed have none. ssh prints ProxyCommand only if it is
// set, even to none; the program of a LocalCommand would inherit the socket.
struct Setting {
  std::string_view name, neutral;
};
constexpr std::array<Setting, 14> kSettings = {{{"addressfamily", "any"},
                                                {"bindaddress", "none"},
                                                {"bindinterface", "none"},
                                                {"canonicalizehostname", "false"},
                                                {"checkhostip", "no"},
                                                {"connectionattempts", "1"},
                                                {"controlpath", "none"},
                                                {"nohostauthenticationforlocalhost", "no"},
                                                {"permitlocalcommand", "no"},
                                                {"proxycommand", ""},
                                                {"proxyjump", "none"},
                                                {"rdomain", "none"},
                                                {"tcpkeepalive", "yes"},
                                                {"verifyhostkeydns", "false"}}};

std::string_view name_in(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string variable(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// ssh runs its ProxyCommand by the user's shell, which must do only that: the shells of service
// accounts run nothing, and startup files of zsh, fish and BASH_ENV may print into the connection.
bool has_quiet_shell() {
  const std::string shell = variable("SHELL");
  if (shell.empty()) return true;  // ssh uses sh
  constexpr std::array<std::string_view, 4> kQuiet = {"sh", "dash", "ksh", "bash"};
  return shell[0] == '/' && ::access(shell.c_str(), X_OK) == 0 &&
         std::ranges::find(kQuiet, name_in(shell)) != kQuiet.end() && variable("BASH_ENV").empty();
}

// A bash that is no other shell's child, and whose stdin is a socket, concludes that sshd started
// it, and reads ~/.bashrc.
void be_a_shell() {
  if (variable("SHLVL").empty() || variable("SHLVL") == "0") ::setenv("SHLVL", "1", 1);
}

std::vector<std::string> quicker(const std::string& path, const std::vector<std::string>& ssh) {
  const auto own = OwnBinary::open();
  if (!own || !is_own_binary(own->path()) || !has_quiet_shell()) return ssh;
  if (own->path().find('\\') != std::string::npos) return ssh;  // ssh treats a backslash specially
  const auto asked = run_command({.argv = asking_for_config(path, ssh),
                                  .env = own_environment(),
                                  .keep_errors = true,
                                  .limit = kConfigLimit});
  if (!asked) return ssh;
  if (asked->too_late) ::waitpid(-1, nullptr, 0);  // killed; else ssh would have a zombie child
  if (asked->status != 0 || asked->too_late) return ssh;
  const int seconds = plain_connection(asked->text);
  if (seconds == 0) return ssh;
  be_a_shell();
  return with_own_connection(ssh, own->path(), seconds);
}

using SshConfig = std::map<std::string_view, std::string_view>;

SshConfig read_config(std::string_view config) {
  SshConfig said;
  for (const std::string_view line : split_words(config, '\n')) {
    const auto blank = std::min(line.find(' '), line.size());
    said.emplace(line.substr(0, blank), line.substr(std::min(blank + 1, line.size())));
  }
  return said;
}

// Only a host and a port describe the connection.
bool is_plain(const SshConfig& said) {
  for (const char* name : {"hostname", "port", "connecttimeout"}) {
    if (!said.contains(name)) return false;
  }
  return std::ranges::all_of(kSettings, [&](const Setting& setting) {
    const auto found = said.find(setting.name);
    return found == said.end() || found->second == setting.neutral;
  });
}

int say_why_not(const std::string& why) {
  std::fprintf(stderr, "ssh: %s\n", why.c_str());
  return kSshFailed;
}

// Passes the socket to the process that started this one, through its stdout.
bool pass_on(int connection) {
  char byte = 0;
  PassedDescriptors<1> passed;
  iovec payload{&byte, 1};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  passed.send_with(message, {&connection, 1});
  return ::sendmsg(STDOUT_FILENO, &message, MSG_NOSIGNAL) == 1;
}

// The options that ssh sets on its own connections, except TCP_NODELAY.
void set_up(int connection) {
  constexpr int kOn = 1;
  ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  ::setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  ::fcntl(connection, F_SETFL, ::fcntl(connection, F_GETFL) & ~O_NONBLOCK);
}

}  // namespace

bool is_ssh(const std::string& path) {
  char start[SELFMAG] = {};
  return name_in(path) == "ssh" && ::access(path.c_str(), X_OK) == 0 &&
         std::ifstream(path).read(start, sizeof start) && std::memcmp(start, ELFMAG, SELFMAG) == 0;
}

int plain_connection(std::string_view config) {
  const SshConfig said = read_config(config);
  if (!is_plain(said)) return 0;
  const auto seconds = parse_int(said.at("connecttimeout"), 1, kMaxSeconds, "seconds");
  return seconds ? *seconds : 0;
}

std::optional<LoginTarget> target_for_others(std::string_view config) {
  const SshConfig said = read_config(config);
  if (!is_plain(said) || !said.contains("user")) return std::nullopt;
  const auto port = parse_int(said.at("port"), 1, 65535, "a port");
  const std::string host(said.at("hostname"));
  const bool here = host == "localhost" || host.starts_with("localhost.") ||
                    host.starts_with("127.") || host == "::1";
  if (!port || here) return std::nullopt;
  return LoginTarget{host, std::string(said.at("user")), *port};
}

std::vector<std::string> asking_for_config(const std::string& path, std::vector<std::string> ssh) {
  ssh[0] = path;
  ssh.insert(ssh.begin() + 1, "-G");
  return ssh;
}

std::vector<std::string> with_own_connection(std::vector<std::string> ssh, std::string_view own,
                                             int seconds) {
  std::string path;  // ssh expands %
  for (const char c : shell_quoted(std::string(own))) path += c == '%' ? "%%" : std::string(1, c);
  const std::string command =
      fmt::format("ProxyCommand={} {} %h %p {}", path, kSshConnectWord, seconds);
  const auto words = {std::string("-o"), command, std::string("-o"),
                      std::string("ProxyUseFdpass=yes")};
  ssh.insert(ssh.begin() + 1, words);  // of two equal options ssh uses the first
  return ssh;
}

int run_ssh_login(const std::vector<std::string>& words) {
  if (words.size() < 4) return kExitUsage;  // path, ssh, host, command
  const std::string& path = words[0];
  const std::vector<std::string> ssh = quicker(path, {words.begin() + 1, words.end()});
  std::vector<char*> argv;
  argv.reserve(ssh.size() + 1);
  for (const std::string& word : ssh) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  return say_why_not(fmt::format("exec '{}': {}", path, std::strerror(errno)));
}

int run_ssh_connect(const std::vector<std::string>& words) {
  if (words.size() != 3) return kExitUsage;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // with the ssh that waits for it
  const auto seconds = parse_int(words[2], 1, kMaxSeconds, "seconds");
  const auto port = parse_port_range(words[1]);
  if (!seconds || !port) return kExitUsage;
  const auto addresses = resolve(words[0], port->first);
  if (!addresses) {
    return say_why_not(
        fmt::format("Could not resolve hostname {}: {}", words[0], addresses.error().what));
  }
  Error last;
  for (const SocketAddress& address : *addresses) {
    const auto deadline = deadline_after(steady_now(), std::chrono::seconds(*seconds));
    const auto made = connect_socket(address.get(), address.size, words[0], deadline);
    if (made) {
      set_up(made->get());
      return pass_on(made->get()) ? kExitOk : kExitSystem;
    }
    last = made.error();
  }
  return say_why_not(fmt::format("connect to host {} port {}: {}", words[0], words[1],
                                 std::strerror(last.os_errno)));
}

}  // namespace dlaunch
