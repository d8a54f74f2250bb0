// The messages between etcd and its clients over the JSON gateway (API v3, etcd 3.4 and later):
// values to request bodies, reply bodies to values. Pure: no sockets. Keys and values are bytes;
// the gateway carries them as base64, and 64-bit numbers as strings.
//
// Every read and write is a transaction here, without a condition if it needs none: so there is one
// kind of request and one of reply.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace dlaunch {

struct EtcdCondition {
  std::string key;
  enum class Of { created, changed, value } of = Of::created;
  std::int64_t revision = 0;  // for created, changed; 0: the key does not exist
  std::string value;
};
struct EtcdGet {
  std::string key;
  bool values = true;  // false: only whether the key exists
};
struct EtcdPut {
  std::string key, value;
  std::int64_t lease = 0;  // the key ends with this lease; 0: it stays
};
struct EtcdDelete {
  std::string key;
  bool prefix = false;  // all keys with this prefix
};
using EtcdAction = std::variant<EtcdGet, EtcdPut, EtcdDelete>;

struct EtcdTransaction {
  std::vector<EtcdCondition> if_all;
  std::vector<EtcdAction> then, otherwise;
};

struct EtcdItem {
  std::string key, value;
  std::int64_t created = 0, changed = 0;  // revisions of the whole key space
  std::int64_t lease = 0;
};
struct EtcdAnswer {
  bool held = false;  // all conditions held: `then` was carried out
  std::int64_t revision = 0;
  std::vector<EtcdItem> items;  // results of the gets, in the order of asking
  std::int64_t deleted = 0;
};

std::string encode(const EtcdTransaction& transaction);
Result<EtcdAnswer> decode_etcd_answer(std::string_view body);

// Changes of keys with `prefix`, from that revision on.
std::string encode_etcd_watch(std::string_view prefix, std::int64_t revision);
// One line of the endless reply. True: something has changed, or the watch is over.
Result<bool> decode_etcd_watch(std::string_view line);

std::string encode_etcd_grant(std::int64_t seconds);
std::string encode_etcd_lease(std::int64_t lease);  // to keep or revoke it
Result<std::int64_t> decode_etcd_grant(std::string_view body);
// False: the lease has expired.
Result<bool> decode_etcd_kept(std::string_view body);

std::string encode_etcd_login(std::string_view user, std::string_view password);
Result<std::string> decode_etcd_login(std::string_view body);  // the token

// The content of a reply other than 200.
struct EtcdRefusal {
  int code = 0;  // of gRPC
  std::string text;
  bool come_again() const;  // an error that may pass: an election, an overload, a proxy's
  bool log_in() const;      // the token is missing or too old
  bool forbidden() const;   // wrong name or password, or not allowed to
};
EtcdRefusal decode_etcd_refusal(long status, std::string_view body);

}  // namespace dlaunch
