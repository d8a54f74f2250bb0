// A helper between us and an ssh that we start, to make its login quicker. While ssh logs in, its
// kernel holds a small message back until the other side has acknowledged the last one, and that
// side's kernel delays this (40 ms, a fifth of a login): Nagle's algorithm, which ssh turns off
// only after the login. ssh has no option for it, but accepts a connection from outside:
//
//   SshStarter       dlaunch --ssh-login PATH ssh OPTION… -- HOST COMMAND
//   this process     asks `ssh -G` for the user's configuration of the host, and becomes
//                    that ssh; with us as its ProxyCommand if the configuration has
//                    nothing but a name and a port for the connection
//   ssh              dlaunch --ssh-connect HOST PORT SECONDS
//   this process     connects, and passes the socket on (ProxyUseFdpass)
//
// ssh does everything else: keys, known hosts, the rest of the configuration. In any unusual case
// ssh connects itself; `--ssh-command "ssh -o ProxyCommand=none"` asks for that.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

inline constexpr const char* kSshLoginWord = "--ssh-login";
inline constexpr const char* kSshConnectWord = "--ssh-connect";

// Whether we may make the connections of the program at `path`: a script of that name may run ssh
// anywhere.
bool is_ssh(const std::string& path);

// Reads the output of `ssh -G`: the time limit of the connection in seconds, if only a host and a
// port describe it; 0: the configuration has more.
int plain_connection(std::string_view config);

// Where the configuration leads, in words that mean the same on other hosts; nullopt: it has more,
// or leads to this machine.
struct LoginTarget {
  std::string host, user;
  int port = 0;
};
std::optional<LoginTarget> target_for_others(std::string_view config);

// The arguments with which the ssh at `path` prints its configuration for such a login.
std::vector<std::string> asking_for_config(const std::string& path, std::vector<std::string> ssh);
// Adds `own`, the path of our own program, as the program that makes the connection.
std::vector<std::string> with_own_connection(std::vector<std::string> ssh, std::string_view own,
                                             int seconds);

// words: the path of an ssh, and its arguments. Becomes that ssh, or returns an exit code.
int run_ssh_login(const std::vector<std::string>& words);
// words: host, port, seconds. Prints ssh's messages on stderr.
int run_ssh_connect(const std::vector<std::string>& words);

}  // namespace dlaunch
