#include "rendezvous/openssl.h"

#include <fmt/format.h>

#include "base/symbols.h"

namespace dlaunch {
namespace {

Result<const OpenSsl*> load_openssl() {
  const std::string name = fmt::format("libssl.so.{}", OPENSSL_SHLIB_VERSION);
  // The loader finds libcrypto with it.
  SymbolReader symbols{.library = open_library(name.c_str())};
  if (symbols.library == nullptr) {
    return Error{.code = Errc::unsupported,
                 .what = "TLS needs " + name + ", which this host does not have"};
  }
  static OpenSsl table{};
  symbols.read(table.ERR_clear_error, "ERR_clear_error");
  symbols.read(table.ERR_peek_error, "ERR_peek_error");
  symbols.read(table.ERR_reason_error_string, "ERR_reason_error_string");
  symbols.read(table.OPENSSL_init_ssl, "OPENSSL_init_ssl");
  symbols.read(table.TLS_method, "TLS_method");
  symbols.read(table.SSL_CIPHER_find, "SSL_CIPHER_find");
  symbols.read(table.SSL_CTX_ctrl, "SSL_CTX_ctrl");
  symbols.read(table.SSL_CTX_new, "SSL_CTX_new");
  symbols.read(table.SSL_CTX_set_ciphersuites, "SSL_CTX_set_ciphersuites");
  symbols.read(table.SSL_CTX_set_num_tickets, "SSL_CTX_set_num_tickets");
  symbols.read(table.SSL_CTX_set_options, "SSL_CTX_set_options");
  symbols.read(table.SSL_CTX_set_psk_find_session_callback,
               "SSL_CTX_set_psk_find_session_callback");
  symbols.read(table.SSL_CTX_set_psk_use_session_callback, "SSL_CTX_set_psk_use_session_callback");
  symbols.read(table.SSL_SESSION_free, "SSL_SESSION_free");
  symbols.read(table.SSL_SESSION_new, "SSL_SESSION_new");
  symbols.read(table.SSL_SESSION_set1_master_key, "SSL_SESSION_set1_master_key");
  symbols.read(table.SSL_SESSION_set_cipher, "SSL_SESSION_set_cipher");
  symbols.read(table.SSL_SESSION_set_protocol_version, "SSL_SESSION_set_protocol_version");
  symbols.read(table.SSL_do_handshake, "SSL_do_handshake");
  symbols.read(table.SSL_free, "SSL_free");
  symbols.read(table.SSL_get_error, "SSL_get_error");
  symbols.read(table.SSL_get_ex_data, "SSL_get_ex_data");
  symbols.read(table.SSL_new, "SSL_new");
  symbols.read(table.SSL_read_ex, "SSL_read_ex");
  symbols.read(table.SSL_session_reused, "SSL_session_reused");
  symbols.read(table.SSL_set_accept_state, "SSL_set_accept_state");
  symbols.read(table.SSL_set_connect_state, "SSL_set_connect_state");
  symbols.read(table.SSL_set_ex_data, "SSL_set_ex_data");
  symbols.read(table.SSL_set_fd, "SSL_set_fd");
  symbols.read(table.SSL_shutdown, "SSL_shutdown");
  symbols.read(table.SSL_write_ex, "SSL_write_ex");
  if (symbols.missing == nullptr) return &table;
  return Error{.code = Errc::unsupported,
               .what = fmt::format("TLS: {} lacks {}", name, symbols.missing)};
}

}  // namespace

Result<const OpenSsl*> openssl() {
  static const Result<const OpenSsl*> found = load_openssl();
  return found;
}

}  // namespace dlaunch
