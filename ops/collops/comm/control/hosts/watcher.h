#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "collops/comm/control/hosts/bridge.h"
#include "collops/comm/control/hosts/local_news.h"
#include "collops/comm/control/hosts/mirror.h"

namespace collops::control {

// Copies the state of this host's ranks to the boards of the other hosts, and theirs to this board:
// a thread in the process of one rank per host. It runs while its rank computes, and calls wait on
// the board, never on a socket. It sleeps until a rank of this host rings, the bridge is ready, or
// kNapMs have passed. Created at first contact; ends with its rank's communicator, after it has
// sent all earlier state. One thread uses this class.
class Watcher {
 public:
  // `group`: this host's ranks and board, and a descriptor of the bell that the watcher owns.
  Watcher(Group group, int rank_size, std::unique_ptr<Bridge> bridge, double flush_s = kFlushS);
  // Waits at most `flush_s` until the ranks of this host have finished their last step and all
  // state has been sent.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  static constexpr int kNapMs = 20;
  static constexpr int64_t kBeatMs = 100;
  static constexpr double kFlushS = 1.0;

 private:
  void Run();
  void Farewell();
  bool AllQuiet() const;
  // Takes all news that have arrived, then sends all that is new. True if all hosts have it.
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
  // A remote rank, whose doorbell, rung whenever all are rung, wakes this thread.
  int doorbell_rank_;
  LocalNews news_;
  Mirror mirror_;
  std::vector<bool> gone_;  // hosts from which no more news are taken
  const double flush_s_;
  int64_t beat_ms_ = 0;
  bool rung_ = true;  // since the last look
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace collops::control
