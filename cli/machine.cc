#include "cli/machine.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <climits>
#include <fmt/ranges.h>

#include "base/address.h"
#include "base/interfaces.h"
#include "base/secret.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "cli/read_file.h"
#include "cli/slurm_time.h"
#include "launcher/node/placement/accelerators.h"
#include "launcher/process/command.h"
#include "launcher/process/spawn.h"

extern char** environ;

namespace dlaunch {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  return ::gethostname(name, sizeof name) == 0 && name[0] != '\0' ? name : "localhost";
}

// In a pod /etc/hosts has it.
std::string full_name() {
  std::string name = host_name();
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &raw) != 0) return name;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  return raw->ai_canonname != nullptr ? raw->ai_canonname : name;
}

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

bool is_ours(const sockaddr* address) {
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return false;
  if (is_loopback(address)) return true;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  for (const ifaddrs* one = raw; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr != nullptr && same_address(one->ifa_addr, address)) return true;
  }
  return false;
}

bool can_bind_to(const char* address) {
  const auto where = resolve(address, 0);
  if (!where || where->empty()) return false;
  const SocketAddress& first = where->front();
  const UniqueFd socket(::socket(first.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket && ::bind(socket.get(), first.get(), first.size) == 0;
}

std::string loopback() {
  return !can_bind_to("127.0.0.1") && can_bind_to("::1") ? "::1" : "127.0.0.1";
}

Result<std::string> local_address(const std::string& host) {
  if (host == "localhost") return loopback();
  const std::string us = host_name();
  const bool our_name = host == us || host == us.substr(0, us.find('.'));
  const auto addresses = resolve(host, 0);
  if (!addresses) {
    if (our_name) return loopback();
    return Error{.code = Errc::usage, .what = host + ": " + addresses.error().what};
  }
  for (const SocketAddress& one : *addresses) {
    if (is_ours(one.get())) return numeric_host(one);
  }
  return Error{.code = Errc::usage, .what = host + " is another machine"};
}

Result<std::string> address_towards_host(const std::string& host) {
  const auto addresses = resolve(host, 9);
  if (!addresses) {
    return Error{.code = Errc::usage,
                 .what = fmt::format("resolve host '{}': {}", host, addresses.error().what)};
  }
  int last = 0;
  for (const SocketAddress& one : *addresses) {
    const auto own = address_towards(one);
    if (own) return numeric_host(*own);
    last = own.error().os_errno;
  }
  return errno_error("find a way to host '" + host + "'", last);
}

Result<std::string> interface_address(const std::string& wanted) {
  return choose_address(wanted, host_addresses());
}

std::string any_address_of_ours() { return any_address(host_addresses()); }

Result<std::string> folder() {
  std::error_code ec;
  const char* said = std::getenv("PWD");
  if (said != nullptr && *said == '/' && std::filesystem::equivalent(said, ".", ec) && !ec) {
    return std::string(said);
  }
  const auto path = std::filesystem::current_path(ec);
  if (ec) return errno_error("find the working folder", ec.value());
  return path.string();
}

std::vector<std::string> whole_environment() {
  std::vector<std::string> all;
  for (char** item = environ; *item != nullptr; ++item) all.emplace_back(*item);
  return all;
}

// The system does not execute text without "#!", whatever the file's mode is.
bool is_bare_text(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char text[2] = "";
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : -1;
  if (n < 0 || (text[0] == '#' && text[1] == '!')) return false;
  const auto first = static_cast<unsigned char>(text[0]);
  return n == 0 || std::isprint(first) != 0 || std::isspace(first) != 0;
}

FileKind file_kind(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return FileKind::absent;
  if (S_ISDIR(st.st_mode)) return FileKind::folder;
  const bool may = ::access(path.c_str(), X_OK) == 0;
  return may && !is_bare_text(path) ? FileKind::executable : FileKind::plain;
}

Result<void> can_create(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const FileKind kind = file_kind(path);
  if (kind == FileKind::folder) return errno_error("write " + path, EISDIR);
  const std::string& what = kind == FileKind::absent ? folder : path;
  if (::access(what.c_str(), W_OK) != 0) return errno_error("write " + path, errno);
  if (kind == FileKind::absent && file_kind(folder) != FileKind::folder) {
    return errno_error("write " + path, ENOTDIR);
  }
  return {};
}

Result<void> check_secret(const std::string& path) {
  auto secret = Secret::load(path);
  if (secret) return {};
  Error error = secret.error();
  if (error.os_errno != 0) error.code = Errc::not_found;
  return error;
}

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::string new_job_id() {
  auto id = random_hex(4);
  return id ? *id : fmt::format("{:x}", ::getpid());
}

Result<std::string> ask_flux(const std::vector<std::string>& words) {
  constexpr Duration kLimit = std::chrono::seconds(30);  // a busy instance may take its time
  const char* path = ::getenv("PATH");
  const auto program = find_program("flux", path != nullptr ? path : "/usr/bin:/bin");
  if (!program) return program.error();
  Command::Request request{
      .argv = {*program}, .env = own_environment(), .keep_errors = true, .limit = kLimit};
  request.argv.insert(request.argv.end(), words.begin(), words.end());
  const auto end = run_command(request);
  if (!end) return end.error();
  const std::string why = describe(*end, kLimit);
  if (why.empty()) return end->text;
  return Error{.what = fmt::format("flux {} {}: {}", fmt::join(words, " "), why,
                                   escaped(end->text.substr(0, end->text.find('\n'))))};
}

bool has_terminal() {
  const UniqueFd terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC));
  return terminal && ::tcgetpgrp(terminal.get()) == ::getpgrp();
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpus = usable_cpus();
  machine.hostname = host_name();
  if (std::getenv("JOB_COMPLETION_INDEX") != nullptr) machine.full_name = full_name();
  machine.stdout_is_terminal = ::isatty(STDOUT_FILENO) == 1;
  machine.stderr_is_terminal = ::isatty(STDERR_FILENO) == 1;
  machine.has_terminal = has_terminal();
  machine.topology = discover_topology;
  machine.gpus = [] { return read_gpu_files(); };
  machine.accelerators = [](std::string_view kind) { return count_accelerators(kind); };
  machine.hcas = [] { return read_hcas(); };
  machine.local_address = local_address;
  machine.loopback = loopback;
  machine.address_towards = address_towards_host;
  machine.interface_address = interface_address;
  machine.any_address = any_address_of_ours;
  machine.folder = folder;
  machine.whole_environment = whole_environment;
  machine.read_file = read_file;
  machine.file_kind = file_kind;
  machine.can_create = can_create;
  machine.check_secret = check_secret;
  machine.environment = environment;
  machine.new_job_id = new_job_id;
  machine.ask_flux = ask_flux;
  machine.slurm_time_left = slurm_time_left;
  return machine;
}

}  // namespace dlaunch
