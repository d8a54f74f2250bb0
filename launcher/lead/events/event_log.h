// EventLog: stamps the job's events with both clocks, keeps the newest ones for programs that ask,
// and appends all of them to the file of --events. The
// loop never waits for that file: a thread writes it (FileWriter). What cannot be written is
// counted, and an event "lost" says how much that was. One thread, the loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "launcher/lead/events/event_feed.h"
#include "launcher/lead/events/job_event.h"
#include "launcher/output/file_writer.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

EventTime time_now();

class EventLog {
 public:
  // path "": no file. most: its bytes; events beyond that are left out, except for the job's end.
  static Result<std::unique_ptr<EventLog>> open(asio::io_context& loop, const std::string& path,
                                                const std::string& job_id,
                                                std::size_t most = SIZE_MAX);

  void add(const JobEvent& event);
  // As EventFeed::ask().
  void ask(std::optional<std::uint64_t> after, const EventFeed::Reply& reply);
  // Calls then() once all is written, or after 5 s without success, and programs that follow the
  // events have the last one, or do not ask for it.
  void close(std::function<bool()> others_owe, std::function<void()> then);
  // After close(): others_owe() may say something else now.
  void close_if_done();

 private:
  EventLog(asio::io_context& loop, std::string job_id);
  void write(const std::string& line, const EventTime& time, bool last);
  void answer_due();

  const std::string job_id_;
  FileWriter writer_;
  FileWriter::FilePtr file_;
  std::size_t room_ = SIZE_MAX;  // bytes that the file may still get
  std::uint64_t unwritten_ = 0;
  EventFeed feed_;
  DeadlineTimer feed_timer_, close_timer_;
  TimePoint close_by_ = kNever;
  std::function<bool()> others_owe_;  // another feed, as EventFeed::owes_last()
  std::function<void()> on_closed_;
};

}  // namespace dlaunch
