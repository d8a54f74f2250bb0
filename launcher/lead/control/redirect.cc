#include "launcher/lead/control/redirect.h"

#include <unistd.h>

namespace dlaunch {

Result<std::unique_ptr<Redirect>> Redirect::open(asio::io_context& loop, const std::string& folder,
                                                 const Referral& referral) {
  const std::string path = folder + "/" + kControlSocket;
  ::unlink(path.c_str());  // of an earlier leader
  const std::string answer = refer_to(referral);
  auto server = ControlServer::open(
      loop, path, kMaxControlRequest,
      [answer](const std::string&, const ControlServer::Reply& reply) { reply(answer); });
  if (!server) return server.error();
  return std::unique_ptr<Redirect>(new Redirect(std::move(*server)));
}

}  // namespace dlaunch
