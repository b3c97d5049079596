#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collops/comm/backends/call_prediction.h"
#include "collops/comm/backends/ucx/schedule/simulation/machines.h"
#include "collops/comm/backends/ucx/schedule/transfer.h"

namespace collops::ucx {

// The time of a rank's CPU, at either end, for all that it sends to another one: so many messages,
// and their bytes together.
double MessagesUs(const LinkCosts& costs, int64_t messages, int64_t bytes);

// One call of all ranks. Its beginning is the same for every call: the ranks of a host compare
// their heads, then each sends its host's head to those that it speaks to, and awaits one of every
// other host. A derived class adds what follows. Ranks that share cores make it between two
// barriers, which have no more than the beginning: they leave a barrier one after the other, and
// those that are done keep a core in the next one. Actions are made when they are due, for one rank
// and one other host at a time: 10,000 ranks fit into memory.
class CallProgram : public Program {
 public:
  CallProgram(const HostMap& hosts, const CallToPredict& call);

  Action Next(int rank) override;
  void Arrived(int rank, int task) override;

 protected:
  struct State {
    int round;                          // kBefore ...
    int part = 0;                       // of the call
    int index = 0;                      // of the next host in it
    std::array<int64_t, 3> heads = {};  // by round
    int64_t arrived = 0;                // other messages
    std::vector<Action> actions;        // the next one is the last
  };

  // The bytes that go with the head from one rank to another.
  virtual int64_t BytesWithHead(int from, int to) const = 0;
  // Adds what the rank does next, by its state, in reverse order; false: it waits. With part kEnd
  // the call has ended.
  virtual bool Add(int rank, State* state) = 0;
  virtual void TaskArrived(int, int) {}

  static constexpr int kEnd = -1;

  State& StateOf(int rank) { return states_[static_cast<size_t>(rank)]; }
  int64_t RanksBeside(int rank) const {
    return static_cast<int64_t>(hosts_.RanksOf(hosts_.HostOf(rank)).size());
  }
  // A rank copies, while all ranks of its host do.
  Action Copy(int rank, int64_t bytes) const;
  static Action Meeting(int count);
  // The streams from one rank to another as so many sends, of which none is much longer than a
  // chunk, but few enough to simulate. The receiver expects the same number.
  int64_t PartsOf(int64_t bytes) const;
  void AddSends(int to, int64_t bytes, int64_t messages, State* state) const;

  const HostMap& hosts_;
  const CallToPredict& call_;
  const int64_t item_;

 private:
  enum Round { kBefore, kCall, kAfter };
  // False: it awaits heads.
  bool Begin(int rank, State* state);
  void Next(State* state);
  void SendHeads(int rank, State* state);

  std::vector<State> states_;
};

// The messages of a stream of so many bytes.
inline int64_t StreamMessages(int64_t bytes) {
  return Chunking{bytes, kStreamChunkBytes}.messages();
}

}  // namespace collops::ucx
