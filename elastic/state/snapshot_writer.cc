#include "elastic/state/snapshot_writer.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/quiet_thread.h"

namespace dlaunch {

SnapshotWriter::SnapshotWriter(std::string folder, int keep, std::string description)
    : folder_(std::move(folder)), keep_(keep), description_(std::move(description)) {}

SnapshotWriter::~SnapshotWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool SnapshotWriter::idle() const {
  const std::lock_guard lock(mutex_);
  return copy_ == nullptr;
}

void SnapshotWriter::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return copy_ == nullptr; });
}

Result<void> SnapshotWriter::write(Copy& copy, std::vector<ObjectId> objects) {
  if (objects.empty()) return {};
  if (!thread_.joinable()) {
    auto started = start_quiet_thread([this] { work(); });
    if (!started) return started.error();
    thread_ = std::move(*started);
  }
  {
    const std::lock_guard lock(mutex_);
    DL_ASSERT(copy_ == nullptr);
    copy.busy = true;
    copy_ = &copy;
    objects_ = std::move(objects);
  }
  changed_.notify_all();
  return {};
}

void SnapshotWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || copy_ != nullptr; });
    if (copy_ == nullptr) return;  // a copy given before the end is still written
    lock.unlock();
    write_now(*copy_, objects_);
    lock.lock();
    copy_->busy = false;
    copy_ = nullptr;
    changed_.notify_all();
  }
}

void SnapshotWriter::write_now(const Copy& copy, const std::vector<ObjectId>& objects) {
  Result<void> result = make_snapshot_folder(folder_);
  if (result) prune_snapshots(folder_, copy.id.version, keep_);
  for (const ObjectId object : objects) {
    if (!result) break;
    result = write_snapshot(
        folder_,
        {.id = copy.id, .world = copy.world, .object = object, .description = description_},
        copy.objects.at(object).bytes);
  }
  if (!result && !complained_) {
    log_warn("{}: {} is not saved; training continues", result.error().what,
             to_text(copy.id.version));
  }
  complained_ = !result;
}

}  // namespace dlaunch
