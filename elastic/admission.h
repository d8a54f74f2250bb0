// Admission: what a leader answers to a host that asks to join its job. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dlaunch {

// What the host says.
struct JoinRequest {
  std::string host;
  std::string job;           // what must be alike on all hosts, in words
  std::uint64_t build = 0;   // the fingerprint of the messages that its dlaunch knows
  std::string run;           // the run of the job that it was in; "": none
  bool has_workers = false;  // of that run
};

// What the leader knows.
struct JoinState {
  std::string job, run;         // its own
  std::uint64_t build = 0;      // its own
  std::string leader;           // its host
  bool elects = false;          // hosts elect the leader
  bool drained = false;         // the user keeps that host out
  bool starter_gone = false;    // the leader started that dlaunch, and its starter has ended
  bool continues = false;       // a job that began under an earlier leader
  bool awaits_earlier = false;  // and hosts of that time may still come
  bool begun = false;           // the job, under this leader
};

struct Admission {
  enum class Answer {
    refuse,   // for the reason in `why`
    clear,    // the host ends its workers, and asks again
    wait,     // until the hosts of the earlier time are there, or late
    take_in,  // at once
    test,     // it is healthy first: the job has begun
  };
  Answer answer = Answer::refuse;
  std::string why;
};

Admission admit(const JoinRequest& request, const JoinState& state);

}  // namespace dlaunch
