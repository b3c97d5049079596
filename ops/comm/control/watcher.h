#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/control/bridge.h"
#include "comm/control/local_news.h"
#include "comm/control/mirror.h"

namespace collops::control {

// Keeps the board of this host and those of the others alike: a thread in the process of one rank
// of each host, which speaks for all of them. It carries news also while its rank computes; nobody
// in a call ever waits for a socket, he reads his board. It sleeps until a rank of this host rings,
// the bridge has something, or kNapMs have gone by. Made at first contact, ends with the
// communicator of its rank, after it has told all that has happened before. One caller.
class Watcher {
 public:
  // `group`: this host's ranks and board, and a bell of the watcher's own.
  Watcher(Group group, int rank_size, std::unique_ptr<Bridge> bridge,
          double farewell_s = kFarewellS);
  // Waits until the ranks of this host are through with their last step and all of it is told, at
  // most `farewell_s`.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  static constexpr int kNapMs = 20;
  static constexpr int64_t kBeatMs = 100;
  static constexpr double kFarewellS = 1.0;

 private:
  void Run();
  void Farewell();
  bool AllQuiet() const;
  // Everything that has come, then everything that is new here. True if all hosts know it.
  bool Turn();
  void TakeAll();
  void Distrust(int host);
  void Beat();
  void Sleep();
  bool IsGone(int host) const { return gone_[static_cast<size_t>(host)]; }

  Group group_;
  std::unique_ptr<Bridge> bridge_;
  Board board_;
  int rank_size_;
  int num_hosts_;
  std::vector<int> own_ranks_;
  int bed_;  // a rank of another host: its doorbell, which rings whenever all are rung, is ours
  LocalNews news_;
  Mirror mirror_;
  std::vector<bool> gone_;  // hosts of which nothing more is taken
  const double farewell_s_;
  int64_t beat_ms_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace collops::control
