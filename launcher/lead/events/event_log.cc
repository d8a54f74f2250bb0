#include "launcher/lead/events/event_log.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"

namespace dlaunch {
namespace {

constexpr Duration kCloseLimit = std::chrono::seconds(5);
constexpr Duration kCloseLook = std::chrono::milliseconds(50);

// A pipe without a reader is an error: opening it would wait for one.
Result<UniqueFd> open_to_append(const std::string& path) {
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(::open(path.c_str(), flags, 0666));
  if (!fd || ::fcntl(fd.get(), F_SETFL, O_APPEND) != 0) {
    return errno_error("write --events " + path, errno);
  }
  return fd;
}

}  // namespace

EventTime time_now() {
  return {.wall = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()),
          .monotonic = steady_now()};
}

Result<std::unique_ptr<EventLog>> EventLog::open(asio::io_context& loop, const std::string& path,
                                                 const std::string& job_id, std::size_t most) {
  std::unique_ptr<EventLog> log(new EventLog(loop, job_id));
  if (path.empty()) return log;
  auto fd = open_to_append(path);
  if (!fd) return fd.error();
  log->room_ = room_in(fd->get(), most);
  log->file_ = std::make_shared<FileWriter::File>(std::move(*fd), "--events " + path);
  log->file_->lost_line = [job_id](std::size_t lines) {
    return render_json(job_event::Lost{lines}, time_now(), job_id);
  };
  return log;
}

EventLog::EventLog(asio::io_context& loop, std::string job_id)
    : job_id_(std::move(job_id)),
      writer_(loop, {.drained = [this] { close_if_done(); },
                     .failed = [](const Error& error) { log_warn("{}", error.what); }}),
      feed_(static_cast<std::uint64_t>(time_now().wall.time_since_epoch().count())),
      feed_timer_(loop, [this] { answer_due(); }),
      close_timer_(loop, [this] { close_if_done(); }) {}

void EventLog::add(const JobEvent& event) {
  const EventTime time = time_now();
  std::string line = render_json(event, time, job_id_);
  const bool last = std::holds_alternative<job_event::JobEnded>(event);
  write(line, time, last);
  line.pop_back();
  feed_.add(std::move(line), last);
  answer_due();
}

void EventLog::write(const std::string& line, const EventTime& time, bool last) {
  if (!file_ || file_->gone) return;
  const bool fits = last || line.size() <= room_;
  if (!fits || writer_.full()) return static_cast<void>(++unwritten_);
  room_ -= std::min(room_, line.size());
  if (unwritten_ > 0) {
    writer_.write(file_, render_json(job_event::Lost{std::exchange(unwritten_, 0)}, time, job_id_));
  }
  writer_.write(file_, line);
}

void EventLog::ask(std::optional<std::uint64_t> after, const EventFeed::Reply& reply) {
  feed_.ask(steady_now(), after, reply);
  answer_due();
}

void EventLog::answer_due() {
  feed_.on_clock(steady_now());
  feed_timer_.arm(feed_.deadline().value_or(kNever));
  close_if_done();
}

void EventLog::close(std::function<bool()> others_owe, std::function<void()> then) {
  others_owe_ = std::move(others_owe);
  on_closed_ = std::move(then);
  close_by_ = steady_now() + kCloseLimit;
  close_if_done();
}

void EventLog::close_if_done() {
  if (!on_closed_) return;
  const TimePoint now = steady_now();
  const bool written = !file_ || file_->gone || writer_.empty();
  const bool late = now >= close_by_;
  if (!late && (feed_.owes_last(now) || others_owe_())) return close_timer_.arm(now + kCloseLook);
  if (!late && !written) return close_timer_.arm(close_by_);
  if (!written) log_warn("{} does not take the last events: they may be lost", file_->name);
  close_timer_.arm(kNever);
  if (const auto done = std::exchange(on_closed_, nullptr)) done();
}

}  // namespace dlaunch
