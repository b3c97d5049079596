#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "driver/stream.h"

namespace collops_sim {

// What one cuEventRecord promises; a wait keeps the promise it saw.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point when;

  Result Reach();
  Result Wait();
  bool IsReached();
};

struct Event {
  Context* context = nullptr;
  bool is_timed = true;
  std::mutex mutex;
  std::shared_ptr<Mark> last;        // null: never recorded
  std::shared_ptr<Capture> capture;  // not null: it was last recorded into a graph, as `record`
  int record = 0;
};

// What is put on `after` from now on waits for all that is on `before`, captured or not.
Result OrderStreams(Stream* before, Stream* after);

}  // namespace collops_sim
