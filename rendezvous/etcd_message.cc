#include "rendezvous/etcd_message.h"

#include <array>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace dlaunch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) -> unsigned {
      return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U;
    };
    const unsigned group = at(0) << 16 | at(1) << 8 | at(2);
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k <= bytes.size() ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

// nullopt: the text is not base64.
std::optional<std::string> from_base64(std::string_view text) {
  static constexpr auto kValues = [] {
    std::array<signed char, 256> values{};
    values.fill(-1);
    for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
      values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<signed char>(i);
    }
    return values;
  }();
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  unsigned bits = 0;
  int held = 0;
  for (const char c : text) {
    const int value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<unsigned>(value)) & 0xfffff;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held & 0xff);
  }
  return out;
}

// The first key after all keys with the prefix.
std::string behind(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::string(1, '\0');  // to the end of all keys
  ++end.back();
  return end;
}

Error malformed_reply() { return {.code = Errc::protocol, .what = "etcd: a malformed reply"}; }

// Missing fields are 0, because the gateway omits zeros.
std::int64_t number(const Json& object, const char* name) {
  const auto it = object.find(name);
  if (it == object.end()) return 0;
  if (it->is_number_integer()) return it->get<std::int64_t>();
  if (!it->is_string()) return 0;
  const auto& text = it->get_ref<const std::string&>();
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// HTTP's: time-out, too many requests, the client has gone, and errors of the server or a proxy.
bool passes(long status) {
  return status == 408 || status == 429 || status == 499 || status >= 500;
}

std::string text(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

Json parsed(std::string_view body) { return Json::parse(body.begin(), body.end(), nullptr, false); }

Json condition(const EtcdCondition& what) {
  Json json{{"key", base64(what.key)}, {"result", "EQUAL"}};
  if (what.of == EtcdCondition::Of::value) {
    json["target"] = "VALUE";
    json["value"] = base64(what.value);
  } else if (what.of == EtcdCondition::Of::created) {
    json["target"] = "CREATE";
    json["create_revision"] = std::to_string(what.revision);
  } else {
    json["target"] = "MOD";
    json["mod_revision"] = std::to_string(what.revision);
  }
  return json;
}

Json action(const EtcdAction& what) {
  if (const auto* get = std::get_if<EtcdGet>(&what)) {
    return {{"request_range", {{"key", base64(get->key)}, {"keys_only", !get->values}}}};
  }
  if (const auto* put = std::get_if<EtcdPut>(&what)) {
    return {{"request_put",
             {{"key", base64(put->key)},
              {"value", base64(put->value)},
              {"lease", std::to_string(put->lease)}}}};
  }
  const auto& gone = std::get<EtcdDelete>(what);
  Json range{{"key", base64(gone.key)}};
  if (gone.prefix) range["range_end"] = base64(behind(gone.key));
  return {{"request_delete_range", range}};
}

Json actions(const std::vector<EtcdAction>& all) {
  Json list = Json::array();
  for (const auto& one : all) list.push_back(action(one));
  return list;
}

bool read_items(const Json& range, std::vector<EtcdItem>& items) {
  const auto found = range.find("kvs");
  if (found == range.end()) return true;
  if (!found->is_array()) return false;
  for (const auto& kv : *found) {
    if (!kv.is_object()) return false;
    auto key = from_base64(text(kv, "key")), value = from_base64(text(kv, "value"));
    if (!key || !value) return false;
    items.push_back({std::move(*key), std::move(*value), number(kv, "create_revision"),
                     number(kv, "mod_revision"), number(kv, "lease")});
  }
  return true;
}

}  // namespace

std::string encode(const EtcdTransaction& transaction) {
  Json conditions = Json::array();
  for (const auto& one : transaction.if_all) conditions.push_back(condition(one));
  return Json{{"compare", conditions},
              {"success", actions(transaction.then)},
              {"failure", actions(transaction.otherwise)}}
      .dump();
}

Result<EtcdAnswer> decode_etcd_answer(std::string_view body) {
  const Json json = parsed(body);
  if (!json.is_object() || !json.contains("header") || !json["header"].is_object()) {
    return malformed_reply();
  }
  EtcdAnswer answer;
  answer.revision = number(json["header"], "revision");
  answer.held = json.contains("succeeded") && json["succeeded"] == true;
  const auto responses = json.find("responses");
  if (responses == json.end()) return answer;
  if (!responses->is_array()) return malformed_reply();
  for (const auto& response : *responses) {
    if (!response.is_object()) return malformed_reply();
    for (const auto& [kind, what] : response.items()) {
      if (!what.is_object()) return malformed_reply();
      if (kind == "response_range" && !read_items(what, answer.items)) return malformed_reply();
      if (kind == "response_delete_range") answer.deleted += number(what, "deleted");
    }
  }
  return answer;
}

std::string encode_etcd_watch(std::string_view prefix, std::int64_t revision) {
  const Json what{{"key", base64(prefix)},
                  {"range_end", base64(behind(prefix))},
                  {"start_revision", std::to_string(revision)}};
  return Json{{"create_request", what}}.dump();
}

Result<bool> decode_etcd_watch(std::string_view line) {
  const Json json = parsed(line);
  if (!json.is_object()) return malformed_reply();
  const auto result = json.find("result");
  if (result == json.end() || !result->is_object()) return malformed_reply();
  return result->contains("events") || result->contains("canceled");
}

std::string encode_etcd_grant(std::int64_t seconds) {
  return Json{{"TTL", std::to_string(seconds)}}.dump();
}

std::string encode_etcd_lease(std::int64_t lease) {
  return Json{{"ID", std::to_string(lease)}}.dump();
}

Result<std::int64_t> decode_etcd_grant(std::string_view body) {
  const Json json = parsed(body);
  if (!json.is_object() || number(json, "ID") == 0) return malformed_reply();
  return number(json, "ID");
}

Result<bool> decode_etcd_kept(std::string_view body) {
  const Json json = parsed(body.substr(0, body.find('\n')));
  if (!json.is_object()) return malformed_reply();
  const auto result = json.find("result");
  if (result == json.end() || !result->is_object()) return malformed_reply();
  return number(*result, "TTL") > 0;
}

std::string encode_etcd_login(std::string_view user, std::string_view password) {
  return Json{{"name", user}, {"password", password}}.dump(-1, ' ', false,
                                                           Json::error_handler_t::replace);
}

Result<std::string> decode_etcd_login(std::string_view body) {
  const Json json = parsed(body);
  if (!json.is_object() || text(json, "token").empty()) return malformed_reply();
  return text(json, "token");
}

EtcdRefusal decode_etcd_refusal(long status, std::string_view body) {
  EtcdRefusal refusal;
  const Json json = parsed(body.substr(0, body.find('\n')));
  if (json.is_object()) {
    // Where a reply may have several parts, the gateway puts the error into an object of its own.
    const auto nested = json.find("error");
    const Json& error = nested != json.end() && nested->is_object() ? *nested : json;
    const auto code = number(error, "code");
    refusal.code = static_cast<int>(code != 0 ? code : number(error, "grpc_code"));
    refusal.text = escaped(text(error, "message").substr(0, 200));
    if (refusal.text.empty()) refusal.text = escaped(text(error, "error").substr(0, 200));
  }
  if (refusal.text.empty()) refusal.text = fmt::format("HTTP status {}", status);
  if (refusal.code == 0 && passes(status)) refusal.code = 14;
  return refusal;
}

// gRPC's: cancelled, unknown, deadline exceeded, resource exhausted, internal, unavailable.
bool EtcdRefusal::come_again() const {
  return code == 1 || code == 2 || code == 4 || code == 8 || code == 13 || code == 14;
}

// 16 unauthenticated; 3 with these words if the request had no token, or if users or roles have
// changed since the log-in.
bool EtcdRefusal::log_in() const {
  const auto says = [&](const char* words) { return text.find(words) != text.npos; };
  return code == 16 ||
         (code == 3 && (says("user name is empty") || says("revision of auth store is old")));
}

bool EtcdRefusal::forbidden() const {
  return code == 7 || text.find("authentication failed") != text.npos;
}

}  // namespace dlaunch
