#include <string>
#include <string_view>

#include "fuzz.h"
#include "launcher/lead/start/ssh_talk.h"
#include "launcher/process/own_binary.h"

namespace {

using dlaunch::SshTalk;

// What was made of it, up to the first that ends the talk.
struct Account {
  std::string text;
  bool over = false;
  void add(const SshTalk::Action& action) {
    if (over) return;
    text += static_cast<char>('0' + action.index());
    if (const auto* failed = std::get_if<SshTalk::Failed>(&action)) {
      if (failed->exit_code < 1 || failed->exit_code > 255) __builtin_trap();
      text += std::to_string(failed->exit_code) + failed->what;
      over = true;
    }
    over |= std::holds_alternative<SshTalk::Ready>(action);
  }
};

}  // namespace

// However the answer is cut into pieces, the same is made of it.
static int fuzz_ssh_answer(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz_text(data, size);
  SshTalk at_once, one_by_one;
  Account whole, pieces;
  for (const auto& action : at_once.heard(bytes)) whole.add(action);
  for (std::size_t i = 0; i < size && !pieces.over; ++i) {
    for (const auto& action : one_by_one.heard(bytes.substr(i, 1))) pieces.add(action);
  }
  // A line too long for us is dropped in pieces as it comes.
  if (size < 16384 && whole.text != pieces.text) __builtin_trap();
  at_once.said(bytes);
  for (const char c : at_once.ended("ended").what) {
    if (static_cast<unsigned char>(c) < ' ') __builtin_trap();  // it goes to a terminal
  }
  const auto id = dlaunch::find_build_id(bytes);
  if (!id.empty() && id.data() + id.size() > bytes.data() + size) __builtin_trap();
  return 0;
}

static const FuzzTarget ssh_answer_target("ssh_answer", fuzz_ssh_answer);
