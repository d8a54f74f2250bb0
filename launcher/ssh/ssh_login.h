// What stands between us and an ssh that we start, to make its login quicker. While ssh logs in,
// its kernel holds a small message back until the other side has acknowledged the one before, and
// that side's kernel is in no hurry (40 ms, a fifth of a login): Nagle's algorithm, which ssh turns
// off only after the login. It cannot be told to, but it can be given a connection:
//
//   SshStarter       dlaunch --ssh-login PATH ssh OPTION… -- HOST COMMAND
//   that one         asks `ssh -G` what the user's configuration makes of the host, and becomes
//                    that ssh; where nothing but a name and a port says how to connect, with us as
//                    its ProxyCommand
//   ssh              dlaunch --ssh-connect HOST PORT SECONDS
//   that one         connects, and passes the socket on (ProxyUseFdpass)
//
// Everything else is ssh's: keys, known hosts, the rest of the configuration. Where anything is
// unusual, ssh connects itself; `--ssh-command "ssh -o ProxyCommand=none"` asks for that.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

inline constexpr const char* kSshLoginWord = "--ssh-login";
inline constexpr const char* kSshConnectWord = "--ssh-connect";

// Whether the program there is one whose connections we may make: a script of that name may run
// ssh anywhere.
bool is_ssh(const std::string& path);

// Of what `ssh -G` prints: how many seconds a connection may take, if it is one from here to a host
// and a port that nothing else is said of; 0: it is not.
int plain_connection(std::string_view config);

// The arguments with which the ssh at `path` tells its configuration for such a login.
std::vector<std::string> asking_for_config(const std::string& path, std::vector<std::string> ssh);
// With `own`, the path of our own program, as what makes the connection.
std::vector<std::string> with_own_connection(std::vector<std::string> ssh, std::string_view own,
                                             int seconds);

// The path of an ssh, and its arguments: becomes that, or returns an exit code.
int run_ssh_login(const std::vector<std::string>& words);
// host, port, seconds. Says on stderr what ssh would say.
int run_ssh_connect(const std::vector<std::string>& words);

}  // namespace dlaunch
