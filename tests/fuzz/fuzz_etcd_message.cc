#include "fuzz.h"
#include "rendezvous/etcd_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
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
