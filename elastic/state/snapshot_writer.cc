#include "elastic/state/snapshot_writer.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/quiet_thread.h"

namespace dlaunch {

SnapshotWriter::SnapshotWriter(std::string folder, std::string description)
    : folder_(std::move(folder)), description_(std::move(description)) {}

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

Version SnapshotWriter::written() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

Result<void> SnapshotWriter::write(Copy& copy, std::vector<ObjectId> objects,
                                   SnapshotsToKeep keep) {
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
    keep_ = std::move(keep);
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
    const bool done = write_now(*copy_, objects_, keep_);
    lock.lock();
    if (done) written_ = copy_->id.version;
    copy_->busy = false;
    copy_ = nullptr;
    changed_.notify_all();
  }
}

bool SnapshotWriter::write_now(const Copy& copy, const std::vector<ObjectId>& objects,
                               const SnapshotsToKeep& keep) {
  Result<void> result = make_snapshot_folder(folder_);
  if (result) prune_snapshots(folder_, copy.id.version, keep);
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
  return result.has_value();
}

}  // namespace dlaunch
