// Communicator: what a dl_comm is. It joins the job, checks and numbers calls, picks the plane that
// moves the data, and turns the first failure into the error of every later call.
//
// One thread at a time, except that any thread may call abort(), and another thread may send
// messages during a collective. Two threads of the process's pool carry out background operations,
// one for collectives and one for messages; the communicator holds them while it has any.
//
// A group of ranks that share memory on one host costs its share of one segment of at most some 64
// KiB: its links are a channel of its parent's, and it stages large calls in the process's common
// memory. Two ranks that share memory open their socket for messages at their first message.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank_set.h"
#include "base/result.h"
#include "ring/bootstrap.h"
#include "ring/call/abort_flag.h"
#include "ring/call/background.h"
#include "ring/call/batch.h"
#include "ring/call/flight_recorder.h"
#include "ring/call/list_packer.h"
#include "ring/call/operation.h"
#include "ring/call/plane.h"
#include "ring/call/some_quorum.h"
#include "ring/call/verifier.h"
#include "ring/device/device_plane.h"
#include "ring/links/death_watch.h"
#include "ring/links/job_view.h"
#include "ring/links/links.h"
#include "ring/process_hooks.h"
#include "ring/shared_keys.h"
#include "ring/shm/host_memory.h"
#include "ring/shm/shm_regions.h"
#include "ring/stream/messenger.h"
#include "ring/stream/stream_plane.h"

namespace dlaunch {

class Pieces;
class ShardTree;
struct ShardMoves;
class SomeMessages;

class Communicator : private ProcessEvents {
 public:
  // Connects all ranks; blocks until they have come or job.init_timeout has passed.
  // `parent`: for a split; the end of the parent communicator ends this bootstrap, too.
  static Result<std::unique_ptr<Communicator>> make(const JobView& job,
                                                    const ParentEnd* parent = nullptr);
  // A group of these ranks of `parent`, all on one host with shared memory: it meets on the
  // parent's links and has no connections of its own (see can_branch()). Errc::unsupported, on all
  // its ranks: the group gets no shared memory.
  static Result<std::unique_ptr<Communicator>> branch(const JobView& job, Communicator& parent,
                                                      const std::vector<int>& ranks);
  // A communicator of a single rank on which every call returns `error`.
  static std::unique_ptr<Communicator> ended(const Error& error);
  ~Communicator() override;

  int rank() const { return job_.rank; }
  int size() const { return job_.size; }
  const char* transport() const;
  const char* gpu_transport() const;
  int peer_lost() const;  // also one whose data are corrupt; -1: none
  // The ranks' results, here or in a group of this communicator, show that this rank has corrupt
  // data: its process must end. nullopt: they do not.
  std::optional<Error> corrupt_here() const;
  // The error with which it has ended, if it has.
  std::optional<Error> over() const;
  // Why another round is needed, if that names no rank; else "".
  std::string broken_by_nobody() const;
  Duration op_timeout() const { return op_timeout_; }  // < 0: none
  // For later operations, here and in groups made later. Any thread.
  void set_op_timeout(Duration limit) { op_timeout_ = limit; }
  bool is_group() const { return !job_.group.empty(); }
  // This process was forked from the one that joined: nothing works here. Do not destroy the
  // object, because that would close what the parent still uses.
  bool forked() const { return forked_; }
  static Error forked_error();

  // collective() sets the number and deadline of `call`. Errc::usage and Errc::unsupported do not
  // affect the communicator; any other error is final.
  Result<void> collective(Call call);
  // Sets message.source of a receive.
  Result<void> transfer(Message& message);

  // The same in the background. Collectives run in the order in which they were started or called.
  // Messages run in any order, among themselves and beside collectives.
  using Started = Result<std::shared_ptr<Operation>>;
  Started start(Call call);
  Started start(Message message);
  // The operation's own outcome, once it is done.
  Result<void> wait(const Operation& operation);

  // A collective that is made many times, checked once. It counts when it is made.
  Result<std::unique_ptr<const KeptCall>> prepare(Call call);
  Result<void> repeat(const KeptCall& prepared);

  // Batches, which may be nested: between begin_batch() and the outermost end calls are added, and
  // the end carries them out. An error of a call that is not added is that of the end, too.
  // Anything else that begins a collective is refused meanwhile.
  struct StartedCall {
    std::shared_ptr<Operation> operation;
    int* source = nullptr;  // for a receive from any rank; may be null
  };
  bool in_batch() const { return batch_.has_value(); }
  Result<void> begin_batch();
  Result<void> add_to_batch(Call call);
  Result<void> add_to_batch(const Message& message, int* source);
  // For other calls: the error if a batch is open.
  Result<void> refuse_in_batch();
  // The error of a call whose arguments are wrong.
  Error refuse(Error why) { return batch_ ? refused_in_batch(std::move(why)) : why; }
  Result<void> end_batch();
  // The same in the background.
  Result<std::vector<StartedCall>> start_batch();
  // An end with a wrong argument: it ends the batch, or its level, and makes no call.
  Result<void> fail_batch_end(const Error& why);
  void drop_batch() { batch_.reset(); }

  // For other waits of the program's threads.
  const std::shared_ptr<FlightRecorder>& flight() const { return flight_; }

  // Collective. The ranks of each color >= 0 become a communicator, ordered by key and then by
  // rank. A negative color gets null.
  Result<std::unique_ptr<Communicator>> split(int color, int key);
  // A group of these ranks, which all know them and alone make this call. A failure does not affect
  // this communicator. op_timeout_s as for dl_group().
  Result<std::unique_ptr<Communicator>> group(const std::vector<int>& ranks, int tag,
                                              double op_timeout_s);

  // Collective, if the ranks compare their results (DLAUNCH_VERIFY): they compare what they have
  // not compared yet. Otherwise, and if there was no call since the last one, it succeeds at once.
  Result<void> compare_now();

  // Collective. Zeroed memory; ranks may ask for different amounts. On one host with shared memory
  // the others read it in place until release(); elsewhere it is ordinary. If some rank lacks
  // memory all get Errc::io, and the communicator goes on.
  Result<std::shared_ptr<void>> allocate(std::size_t bytes);
  // The memory is ordinary from now on. All ranks call it at the same place among their
  // collectives.
  void release(const void* memory);

  // The CUstream that later calls on device memory follow; null: the legacy default stream.
  Result<void> set_stream(void* stream);
  // Whether blocking calls on device memory return, if they can, when the stream has them.
  Result<void> set_stream_ordered(bool ordered);
  // Waits until such calls are done. Returns the error that has ended the communicator, if any.
  Result<void> sync();
  // After an error that has ended the communicator: waits until no work is left in a stream, before
  // the caller gets the error.
  void wind_up();
  // "auto" or "cpu", for calls on device memory, before the first of them.
  Result<void> set_backend(std::string_view backend);

  SharedKeys& keys() { return keys_; }

  // How many calls of all_reduce_some are decided beyond those that this rank has made.
  int some_behind() const;

  // Ignores the buffers of the call.
  Result<std::string> explain(const Call& given) const;

  // Before this rank leaves: waits until late ranks have got its results of all_reduce_some, or the
  // communicator is over, at most as long as an operation may take. Otherwise the destructor ends
  // them.
  void settle();
  void abort();
  // The round of this communicator is over. Any thread; returns at once.
  void end_round(const Error& why) { abort_.raise(why); }
  std::uint64_t round() const { return job_.round; }

 private:
  friend class SomeMessages;
  explicit Communicator(JobView job) : job_(std::move(job)) {}

  bool can_branch(const std::vector<int>& ranks) const;
  Result<std::unique_ptr<Communicator>> make_group(const JobView& view,
                                                   const std::vector<int>& ranks);
  Result<std::unique_ptr<Communicator>> meet_group(const JobView& group,
                                                   const std::vector<int>& ranks);
  Result<void> bootstrap_on_links(Communicator& parent, const std::vector<int>& ranks);
  Result<ShmMemory> share_segment(const ShmShape& shape, TimePoint deadline,
                                  const ParentEnd& parent);
  Error bootstrap_failed(Error error, const RankSet& missing, TimePoint began) const;
  Result<void> open_messenger();
  ShmExchange& exchange();
  Result<void> connect(const ParentEnd* parent);
  Result<std::unique_ptr<Links>> start_links(Bootstrapped& ready);
  Result<void> open_planes(Bootstrapped& ready);
  std::size_t start_sockets(Bootstrapped& ready);
  Result<std::unique_ptr<LateSource>> late_links(Bootstrapped& ready) const;
  void tell_of_loss(int peer) const;
  CallRoll call_roll();
  Error blame_silent(Error error) const;
  std::optional<Error> absent(const Call& call, Duration waited) const;
  static std::uint32_t hash_of_group(const std::string& group);
  static Trunk::TakeMemory memory_from(const std::shared_ptr<HostMemory>& memory,
                                       const std::vector<int>& locals);
  void share_memory(const std::shared_ptr<HostMemory>& memory, const std::vector<int>& locals);
  void watch_for_deaths(const std::vector<int>& locals, Lives lives);
  Result<void> layer(Bootstrapped& ready, StreamPlane& between);
  std::shared_ptr<const RankGroups> racks_of(const Bootstrapped& ready,
                                             const std::vector<int>& host_of) const;
  Result<std::vector<std::size_t>> all_have(std::size_t bytes, const Result<void>& own);
  static void find_program_op(Call& call);
  Result<void> check(const Call& call);
  Result<void> check(const Message& message);
  Error refused_in_batch(Error why);
  Result<std::optional<Batch>> take_batch();
  Result<void> run_merged(const Batch& batch, const std::function<Result<void>(const Call&)>& run);
  Result<void> start_messages(const Batch& batch, std::vector<StartedCall>& started);
  Result<void> await(const std::vector<StartedCall>& started);
  DevicePlane& device_plane();
  Result<int> gpu_of(const Call& call) const;
  Result<void> attach(Call& call, bool at_once);
  Result<StagedMessage> stage(Message& message);
  Result<void> unstage(const StagedMessage& staged);
  Result<void> run_step(const Call& call);
  Result<void> tell_splits(const Call& call, Splits& splits);
  Result<void> check_shards(const Call& call);
  bool composes(const Call& call) const;
  std::string composition_of(const Call& call) const;
  Result<void> run_on_host(const Call& call);
  Result<void> run_multiplied(Call call);
  void open_verifier();
  Result<void> verify(const Call& call);
  void note_data(const Call& call, VerifiedData::Of of, bool passed_on, const Pieces& pieces);
  Result<void> compare_results(const Call& call);
  bool reduces_everywhere(const Call& call) const;
  bool gathers_broadcast(const Call& call) const;
  std::string way_of(const Call& call, const Plane& plane) const;
  bool passes_on(const Call& call) const;
  bool gathers_by_others(const Call& call) const;
  std::vector<std::size_t> counts_of_root(const Call& call) const;
  Result<void> run_everywhere(const Call& call);
  Result<void> broadcast_directly(const Call& call);
  Result<void> run_composed(const Call& call);
  Result<void> run_shards(const Call& call);
  Result<void> run_scan(const Call& call);
  Result<void> scan_slices(const Call& call);
  Result<void> run_compressed(const Call& call);
  Result<void> check_some(const Call& call);
  Result<void> run_some(const Call& call);
  Result<SomeGiven> some_given(const Call& call, std::uint32_t contributions);
  Result<void> reduce_some(const Call& call, const SomeGiven& given, const std::byte* values);
  void give_some(SomeMessages& messages, const SomeGiven& given, std::span<const std::byte> result,
                 std::size_t count);
  Result<void> take_values(const Call& call);
  Result<void> take_slice(const Call& call, const std::vector<Part>& slices);
  Result<void> give_slices(const Call& call, const std::vector<Part>& slices, const void* result);
  Result<void> run_in_order(const Call& call);
  Result<void> gather_in_order(const Call& call);
  Result<void> reduce_in_order(const Call& call);
  Result<void> gather_and_reduce(const Call& call, const ShardTree& tree, const ShardMoves& moves);
  Result<void> reduce_slices(const Call& call, const ShardTree& tree, const ShardMoves& moves);
  Result<void> run_on_plane(const Call& call, const std::function<void(bool failed)>& ended);
  Result<void> run_with_splits(Call call, const std::function<void(bool failed)>& ended);
  Result<void> run_next(Call call);
  Result<void> run(Call call, SpanKind kind);
  Result<void> run_on_device(const Call& call, std::function<void(bool failed)> ended);
  Result<void> run(Message& message, SpanKind kind);
  int world_peer(int peer) const { return peer < 0 ? -1 : job_.world_rank(peer); }
  static Started pushed(Background& background, std::shared_ptr<Operation> operation);
  std::uint16_t explained(const Call& call, const Plane* plane);
  void serve_collectives(OperationQueue& queue);
  Error named_in_job(Error error) const;
  void note_peer_lost(const Error& error);
  void note_corrupt(const Error& error);
  void leave_note(const char* name, const Error& error);
  Result<void> finish(Result<void> done);
  Result<void> finish(const Message& message, Result<void> done);
  JobView group_view(const std::vector<int>& ranks, const std::string& name) const;
  Error has_left_job(int rank) const;
  Error failed_split(Error error, const JobView& group);
  void on_forked() override;
  void on_exit() override;

  JobView job_;
  std::atomic<Duration> op_timeout_{job_.op_timeout};
  std::vector<int> locals_;       // the ranks that share this host's cores
  std::vector<std::string> who_;  // "rank 3 (pid 4711 on a)" for each, numbered as in the job
  std::vector<int> hosts_;        // of a layered plane: the lowest rank on each one's host
  // Destroyed from the bottom up: the links first (their thread raises the flag), then the planes
  // (their wakers are called by the flag), the flag last.
  AbortFlag abort_;
  SharedKeys keys_{job_, abort_};
  std::shared_ptr<PairSockets> sockets_;  // of the next ones; null: all ranks share memory
  std::unique_ptr<Plane> plane_;          // of the collectives
  std::unique_ptr<DevicePlane> device_;   // for calls on device memory; the first one makes it
  std::unique_ptr<Messenger> messenger_;
  std::unique_ptr<Links> links_;
  std::shared_ptr<FlightRecorder> flight_ = std::make_shared<FlightRecorder>("");
  Completions completions_;
  Background collectives_{[this](OperationQueue& queue) { serve_collectives(queue); }};
  Background messages_{[this](OperationQueue& queue) { messenger_->serve(queue); }};
  std::shared_ptr<ShmRegions> regions_;    // for allocate(); null: its memory is ordinary
  std::unique_ptr<ShmExchange> exchange_;  // likewise
  // For ranks that all share memory on one host.
  std::shared_ptr<HostMemory> host_memory_;  // null: they do not
  std::vector<int> host_ranks_;              // their numbers there
  std::optional<Batch> batch_;               // the one that is open
  std::uint64_t seq_ = 0;
  std::uint64_t compared_ = 0;          // seq_ after the last compare_now()
  std::uint16_t past_ = 0;              // Call::past
  std::vector<std::byte> step_memory_;  // of run_composed(), for the next one
  std::vector<std::byte> products_;     // of run_multiplied(), likewise
  std::vector<std::byte> encoded_;      // of run_compressed(), likewise
  ListPacker packer_;                   // likewise
  std::unique_ptr<Verifier> verifier_;  // null: the ranks do not compare results
  std::vector<std::uint64_t> hashes_;   // of verify(), for the next one
  // Raised once this rank has corrupt data; a communicator shares it with its groups.
  std::shared_ptr<AbortFlag> corrupt_ = std::make_shared<AbortFlag>();
  // Contributions that all_reduce_some has kept for a later call, by slot.
  struct Kept {
    std::vector<std::byte> values;  // their sum
    std::size_t count = 0;
    dl_dtype dtype = DL_UINT8;
    std::uint32_t contributions = 0;
  };
  std::map<int, Kept> kept_;
  std::uint64_t some_made_ = 0;                   // calls of all_reduce_some
  std::vector<std::shared_ptr<Operation>> owed_;  // results on their way to ranks that are late
  std::uint64_t plane_seq_ = 0;  // plane_'s own count: there a call is several steps, or none
  void* stream_ = nullptr;
  bool ordered_ = false;  // set_stream_ordered()
  std::uint64_t splits_ = 0;
  std::map<std::string, std::uint64_t> groups_;  // count for each list of ranks and tag
  std::uint32_t group_hash_ = 0;                 // FlightRecord::group
  std::atomic<bool> noted_{false};
  bool forked_ = false;
  // With a trace or DLAUNCH_DEBUG=explain: the numbers of their texts in the trace.
  struct Explained {
    Collective collective;
    dl_dtype dtype;
    bool on_device, with_splits, in_order, in_one_pass;
    int shards;
    std::size_t count, longest_part;
    auto operator<=>(const Explained&) const = default;
  };
  std::map<Explained, std::uint16_t> explained_;
};

}  // namespace dlaunch
