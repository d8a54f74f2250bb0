// c10d's store of a round: the keys that its ranks share in libdlring, so that a wait for a lost
// rank fails.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ring/torch/torch_work.h"

namespace dlring_torch {

class KeyStore final : public c10d::Store {
 public:
  explicit KeyStore(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) {}

  using Bytes = std::vector<std::uint8_t>;
  using Keys = std::vector<std::string>;

  void set(const std::string& key, const Bytes& value) override {
    comm_->check(dl_key_set(comm_->get(), key.c_str(), value.data(), value.size()));
  }
  Bytes get(const std::string& key) override {
    Bytes value(256);
    for (std::size_t room = 0; room < value.size();) {
      room = value.size();
      std::size_t bytes = 0;
      comm_->check(
          dl_key_get(comm_->get(), key.c_str(), seconds(timeout_), value.data(), room, &bytes));
      value.resize(bytes);
    }
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    std::int64_t sum = 0;
    comm_->check(dl_key_add(comm_->get(), key.c_str(), delta, &sum));
    return sum;
  }
  bool check(const Keys& keys) override {
    for (const auto& key : keys) {
      const auto result = await(key, 0);
      if (result == DL_ERR_TIMEOUT) return false;
      comm_->check(result);
    }
    return true;
  }
  void wait(const Keys& keys) override { wait(keys, timeout_); }
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (const auto& key : keys) {
      comm_->check(await(key, seconds_until(end)));
    }
  }
  bool deleteKey(const std::string&) override { refuse("delete_key"); }
  std::int64_t getNumKeys() override { refuse("num_keys"); }
  // Overrides a function of newer versions.
  c10::intrusive_ptr<c10d::Store> clone() { return c10::make_intrusive<KeyStore>(comm_); }

 private:
  static double seconds(std::chrono::milliseconds time) {
    return std::chrono::duration<double>(time).count();
  }
  [[noreturn]] static void refuse(const char* call) {
    throw std::runtime_error(std::string("dlring: the store of a round does not have ") + call);
  }
  dl_result await(const std::string& key, double timeout_s) const {
    std::size_t bytes = 0;
    return dl_key_get(comm_->get(), key.c_str(), timeout_s, nullptr, 0, &bytes);
  }

  const std::shared_ptr<Comm> comm_;
};

}  // namespace dlring_torch
