#include "fuzz.h"
#include "rendezvous/etcd_message.h"

static int fuzz_etcd_message(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view body = fuzz_text(data, size);
  (void)decode_etcd_answer(body);
  (void)decode_etcd_watch(body);
  (void)decode_etcd_grant(body);
  (void)decode_etcd_kept(body);
  (void)decode_etcd_login(body);
  const EtcdRefusal refusal = decode_etcd_refusal(500, body);
  (void)refusal.come_again();
  (void)refusal.log_in();
  (void)refusal.forbidden();
  return 0;
}

static const FuzzTarget etcd_message_target("etcd_message", fuzz_etcd_message);
