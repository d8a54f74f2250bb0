// NodePort: how the leader of a job reaches a node.
#pragma once

#include "base/clock.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class NodePort {
 public:
  virtual ~NodePort() = default;
  // A new leader begins, which knows nothing yet of the workers there. still_after: the node
  // reports a worker that has not moved for this long; max: it reports stopped workers only.
  virtual void begin(Duration still_after) = 0;
  virtual void take(const NodeMessage& message) = 0;
};

}  // namespace dlaunch
