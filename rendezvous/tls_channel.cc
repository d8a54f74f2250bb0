#include "rendezvous/tls_channel.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include "rendezvous/openssl.h"

namespace dlaunch {
namespace {

const OpenSsl* lib = nullptr;  // since prepare()

}  // namespace

struct TlsChannel::Ssl {
  Mac key{};
  SSL* ssl = nullptr;

  ~Ssl() { lib->SSL_free(ssl); }
};

namespace {

constexpr std::string_view kIdentity = "dlaunch";
constexpr int kKeyData = 0;                        // the index of the application's own data
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

// A session that both ends can compute.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* const key = static_cast<const Mac*>(lib->SSL_get_ex_data(ssl, kKeyData));
  SSL_SESSION* const session = lib->SSL_SESSION_new();
  const auto* const bytes = reinterpret_cast<const unsigned char*>(key->data());
  if (session != nullptr && lib->SSL_SESSION_set1_master_key(session, bytes, key->size()) == 1 &&
      lib->SSL_SESSION_set_cipher(session, lib->SSL_CIPHER_find(ssl, kCipher)) == 1 &&
      lib->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  lib->SSL_SESSION_free(session);
  return nullptr;
}

int use_session(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* size,
                SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *size = kIdentity.size();
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

int find_session(SSL* ssl, const unsigned char* id, std::size_t size, SSL_SESSION** session) {
  const bool ours = std::string_view(reinterpret_cast<const char*>(id), size) == kIdentity;
  *session = ours ? session_of(ssl) : nullptr;
  return !ours || *session != nullptr ? 1 : 0;
}

SSL_CTX* make_context() {
  SSL_CTX* const context = lib->SSL_CTX_new(lib->TLS_method());
  if (context == nullptr) return nullptr;
  lib->SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr);
  lib->SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  // A killed process ends its connection without a close message; frames show what is whole.
  lib->SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_ENABLE_KTLS);
  lib->SSL_CTX_ctrl(context, SSL_CTRL_MODE,
                    SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                        SSL_MODE_RELEASE_BUFFERS,
                    nullptr);
  lib->SSL_CTX_set_num_tickets(context, 0);
  lib->SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  lib->SSL_CTX_set_psk_use_session_callback(context, use_session);
  lib->SSL_CTX_set_psk_find_session_callback(context, find_session);
  return context;
}

// Of the process, and never freed: threads may use it until the process ends.
SSL_CTX* shared_context() {
  static SSL_CTX* const context = make_context();
  return context;
}

}  // namespace

TlsChannel::TlsChannel(std::unique_ptr<Ssl> ssl) : ssl_(std::move(ssl)) {}
TlsChannel::~TlsChannel() = default;

Result<void> TlsChannel::prepare() {
  auto found = openssl();
  if (!found) return found.error();
  lib = *found;
  lib->OPENSSL_init_ssl(0, nullptr);
  return {};
}

Result<std::unique_ptr<TlsChannel>> TlsChannel::open(int fd, Side side, const Secret& secret) {
  auto own = std::make_unique<Ssl>();
  own->key = secret.mac("TLS 1.3 pre-shared key");
  SSL_CTX* const context = shared_context();
  own->ssl = context != nullptr ? lib->SSL_new(context) : nullptr;
  if (own->ssl == nullptr || lib->SSL_set_fd(own->ssl, fd) != 1) {
    return Error{.code = Errc::io, .what = "TLS: OpenSSL cannot begin a connection"};
  }
  lib->SSL_set_ex_data(own->ssl, kKeyData, &own->key);
  side == Side::connector ? lib->SSL_set_connect_state(own->ssl)
                          : lib->SSL_set_accept_state(own->ssl);
  return std::unique_ptr<TlsChannel>(new TlsChannel(std::move(own)));
}

TlsChannel::Moved TlsChannel::shake_hands() {
  lib->ERR_clear_error();
  const Moved shaken = outcome_of(lib->SSL_do_handshake(ssl_->ssl), 0);
  // Otherwise any peer with any certificate would pass.
  if (shaken.outcome != Outcome::moved || lib->SSL_session_reused(ssl_->ssl) == 1) return shaken;
  why_ = "the other side does not prove the secret";
  return {Outcome::refused};
}

TlsChannel::Moved TlsChannel::read(char* to, std::size_t room) {
  lib->ERR_clear_error();
  std::size_t bytes = 0;
  const int result = lib->SSL_read_ex(ssl_->ssl, to, room, &bytes);
  return outcome_of(result, bytes);
}

TlsChannel::Moved TlsChannel::write(const char* from, std::size_t bytes) {
  lib->ERR_clear_error();
  std::size_t taken = 0;
  const int result = lib->SSL_write_ex(ssl_->ssl, from, bytes, &taken);
  return outcome_of(result, taken);
}

void TlsChannel::end_writing() {
  lib->ERR_clear_error();
  (void)lib->SSL_shutdown(ssl_->ssl);
}

TlsChannel::Moved TlsChannel::outcome_of(int result, std::size_t bytes) {
  if (result == 1) return {Outcome::moved, bytes};
  switch (lib->SSL_get_error(ssl_->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return {Outcome::again};
    case SSL_ERROR_SSL: {
      const char* const reason = lib->ERR_reason_error_string(lib->ERR_peek_error());
      why_ = reason != nullptr ? reason : "not TLS";
      return {Outcome::refused};
    }
    default:
      return {Outcome::ended};
  }
}

}  // namespace dlaunch
