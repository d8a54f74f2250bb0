// The contract between dlaunch and the processes that it starts: the names of environment
// variables, and the words of their values. It is public: dlaunch(1) and dlring(3) describe it.
// python/dlaunch/_contract.py has the names that Python needs; the test `contract` compares the
// two.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"

namespace dlaunch {

namespace contract {

// Each option has a variable, too: this prefix and the option's name.
inline constexpr std::string_view kPrefix = "DLAUNCH_";

// -- A worker's place in the job; workers that dlaunch did not start have none of these.
inline constexpr const char* kAgent = "DLAUNCH_AGENT";
// The descriptor for heartbeats, and the inode of the pipe behind it: a process that has closed
// that descriptor may have opened another file at its number.
inline constexpr const char* kHeartbeatFd = "DLAUNCH_HEARTBEAT_FD";
inline constexpr const char* kHeartbeatPipe = "DLAUNCH_HEARTBEAT_PIPE";
inline constexpr const char* kJobId = "DLAUNCH_JOB_ID";
inline constexpr const char* kLocalCores = "DLAUNCH_LOCAL_CORES";
inline constexpr const char* kNcclKernels = "DLAUNCH_NCCL_KERNELS";  // --nccl-record kernels
inline constexpr const char* kRdzv = "DLAUNCH_RDZV";
inline constexpr const char* kRound = "DLAUNCH_ROUND";
inline constexpr const char* kRoundDir = "DLAUNCH_ROUND_DIR";
inline constexpr const char* kTraced = "DLAUNCH_TRACED";  // record all operations for --trace
inline constexpr const char* kSecretFile = "DLAUNCH_SECRET_FILE";
inline constexpr const char* kSite = "DLAUNCH_SITE";    // this job's, among
inline constexpr const char* kSites = "DLAUNCH_SITES";  // those of a training
inline constexpr const char* kSiteGrace = "DLAUNCH_SITE_GRACE";
inline constexpr const char* kSiteJournal = "DLAUNCH_SITE_JOURNAL";
inline constexpr const char* kSiteLinger = "DLAUNCH_SITE_LINGER";
inline constexpr const char* kSiteTimeout = "DLAUNCH_SITE_TIMEOUT";
inline constexpr const char* kSiteWait = "DLAUNCH_SITE_WAIT";
inline constexpr const char* kTfConfig = "DLAUNCH_TF_CONFIG";
inline constexpr const char* kWorker = "DLAUNCH_WORKER";

// -- Settings of libdlring, by dlaunch or by the user
inline constexpr const char* kBackend = "DLAUNCH_BACKEND";
inline constexpr const char* kDebug = "DLAUNCH_DEBUG";
inline constexpr const char* kInitTimeout = "DLAUNCH_INIT_TIMEOUT";
inline constexpr const char* kInterface = "DLAUNCH_INTERFACE";
inline constexpr const char* kLinks = "DLAUNCH_LINKS";
inline constexpr const char* kLinkTimeout = "DLAUNCH_LINK_TIMEOUT";
inline constexpr const char* kOpTimeout = "DLAUNCH_OP_TIMEOUT";
inline constexpr const char* kPlan = "DLAUNCH_PLAN";
inline constexpr const char* kPortRange = "DLAUNCH_PORT_RANGE";
inline constexpr const char* kRack = "DLAUNCH_RACK";  // of the host: "s0.s1", below s0
inline constexpr const char* kSockets = "DLAUNCH_SOCKETS";
inline constexpr const char* kTls = "DLAUNCH_TLS";
inline constexpr const char* kTransport = "DLAUNCH_TRANSPORT";
inline constexpr const char* kVerify = "DLAUNCH_VERIFY";
inline constexpr const char* kWireCodec = "DLAUNCH_WIRE_CODEC";

// -- Settings of dlaunch that are no options
inline constexpr const char* kPmixLibrary = "DLAUNCH_PMIX_LIBRARY";

// -- Between a doctor and the job with which it looks at its hosts
inline constexpr const char* kDoctorBegan = "DLAUNCH_DOCTOR_BEGAN";
inline constexpr const char* kDoctorJson = "DLAUNCH_DOCTOR_JSON";

}  // namespace contract

// How libdlring moves data.
enum class Transport : std::uint8_t { automatic, shm, tcp };
inline constexpr WordTable<Transport, 3> kTransportWords = {
    {{"auto", Transport::automatic}, {"shm", Transport::shm}, {"tcp", Transport::tcp}}};

// How libdlring compares results that must be the same on all ranks.
enum class VerifyMode : std::uint8_t { off, sample, results, full };
inline constexpr WordTable<VerifyMode, 4> kVerifyWords = {{{"off", VerifyMode::off},
                                                           {"sample", VerifyMode::sample},
                                                           {"results", VerifyMode::results},
                                                           {"full", VerifyMode::full}}};

// Which ranks have a control link from the start; the others make one when they need it.
enum class LinkChoice : std::uint8_t { automatic, all, few };
inline constexpr WordTable<LinkChoice, 3> kLinkWords = {
    {{"auto", LinkChoice::automatic}, {"all", LinkChoice::all}, {"few", LinkChoice::few}}};

// What libdlring prints about itself.
enum class DebugOutput : std::uint8_t { none, explain };
inline constexpr WordTable<DebugOutput, 1> kDebugWords = {{{"explain", DebugOutput::explain}}};

// What moves data between GPUs.
enum class Backend : std::uint8_t { automatic, cpu };
inline constexpr WordTable<Backend, 2> kBackendWords = {
    {{"auto", Backend::automatic}, {"cpu", Backend::cpu}}};

}  // namespace dlaunch
