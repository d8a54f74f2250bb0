// The functions of OpenSSL that we use, as a table filled at run time: loading and starting OpenSSL
// takes longer than starting a job, and only --tls needs it.
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/result.h"

namespace dlaunch {

// Members have the names of the functions; OpenSSL's manual pages describe them.
struct OpenSsl {
  decltype(&::ERR_clear_error) ERR_clear_error;
  decltype(&::ERR_peek_error) ERR_peek_error;
  decltype(&::ERR_reason_error_string) ERR_reason_error_string;
  decltype(&::OPENSSL_init_ssl) OPENSSL_init_ssl;
  decltype(&::TLS_method) TLS_method;
  decltype(&::SSL_CIPHER_find) SSL_CIPHER_find;
  decltype(&::SSL_CTX_ctrl) SSL_CTX_ctrl;
  decltype(&::SSL_CTX_new) SSL_CTX_new;
  decltype(&::SSL_CTX_set_ciphersuites) SSL_CTX_set_ciphersuites;
  decltype(&::SSL_CTX_set_num_tickets) SSL_CTX_set_num_tickets;
  decltype(&::SSL_CTX_set_options) SSL_CTX_set_options;
  decltype(&::SSL_CTX_set_psk_find_session_callback) SSL_CTX_set_psk_find_session_callback;
  decltype(&::SSL_CTX_set_psk_use_session_callback) SSL_CTX_set_psk_use_session_callback;
  decltype(&::SSL_SESSION_free) SSL_SESSION_free;
  decltype(&::SSL_SESSION_new) SSL_SESSION_new;
  decltype(&::SSL_SESSION_set1_master_key) SSL_SESSION_set1_master_key;
  decltype(&::SSL_SESSION_set_cipher) SSL_SESSION_set_cipher;
  decltype(&::SSL_SESSION_set_protocol_version) SSL_SESSION_set_protocol_version;
  decltype(&::SSL_do_handshake) SSL_do_handshake;
  decltype(&::SSL_free) SSL_free;
  decltype(&::SSL_get_error) SSL_get_error;
  decltype(&::SSL_get_ex_data) SSL_get_ex_data;
  decltype(&::SSL_new) SSL_new;
  decltype(&::SSL_read_ex) SSL_read_ex;
  decltype(&::SSL_session_reused) SSL_session_reused;
  decltype(&::SSL_set_accept_state) SSL_set_accept_state;
  decltype(&::SSL_set_connect_state) SSL_set_connect_state;
  decltype(&::SSL_set_ex_data) SSL_set_ex_data;
  decltype(&::SSL_set_fd) SSL_set_fd;
  decltype(&::SSL_shutdown) SSL_shutdown;
  decltype(&::SSL_write_ex) SSL_write_ex;
};

// Errc::unsupported: this host has no OpenSSL, or an unsuitable one. Looks once per process.
Result<const OpenSsl*> openssl();

}  // namespace dlaunch
