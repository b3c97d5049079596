#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <tuple>
#include <vector>

#include "collops/comm/backends/call_prediction.h"
#include "collops/comm/backends/ucx/schedule.h"

namespace collops::ucx {

// What a rank does next.
struct Action {
  enum class Kind { kWork, kSend, kAwait, kMeet, kBegin, kEnd, kDone };
  Kind kind = Kind::kDone;
  double us = 0;      // CPU of kWork; of kSend, also at the receiver
  double copies = 0;  // the part of kWork that copies or adds up
  int to = 0;         // of kSend
  int64_t bytes = 0;
  int64_t messages = 1;
  int task = -1;       // what the receiver is told
  int meetings = 1;    // of kMeet
  bool counts = true;  // it is of the call, not of a barrier
};

// One call of all ranks, as their actions. kAwait: nothing can be done until a message arrives.
// kBegin and kEnd: the rank begins, and has ended, the call whose time counts. Its beginning is the
// same for every call: the ranks of a host compare their heads, then each sends its host's head to
// those that it speaks to, and awaits one of every other host. A derived class adds what follows.
// Ranks that share cores make it between two barriers, which have no more than the beginning: they
// leave a barrier one after the other, and those that are done keep a core in the next one. Actions
// are made when they are due, for one rank and one other host at a time: 10,000 ranks fit into
// memory.
class CallProgram {
 public:
  CallProgram(const HostMap& hosts, const CallToPredict& call);

  virtual ~CallProgram() = default;

  Action Next(int rank);
  void Arrived(int rank, int task);

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

  // The parts of the beginning; those of the call follow.
  enum { kEnd = -1, kCompare, kSendHeads, kAwaitHeads, kBegun };

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

// The program of a call; `plans`: of its reductions, by owner, empty if every slice crosses as it
// is. All must outlive it.
std::unique_ptr<CallProgram> MakeProgram(const HostMap& hosts, const CallToPredict& call,
                                         const std::vector<ReductionPlan>& plans);

// A discrete-event simulation of hosts: ranks that run on cores, and a network device per host.
//   send:     takes `us` of the sender's core. Its bytes occupy the sender's device, then, latency
//             later, the receiver's, each in the order of the sends; they are there once the last
//             has passed, and never before the sender's CPU is done, plus latency. Then they take
//             `us` of the receiver's core.
//   meet:     ends on all ranks of the host meeting_us after the last one has come.
//   cores:    a rank that waits keeps its core; if other ranks share the core it yields after
//             turn_us, and in later turns at once.
// The time is from the first rank's begin to the last one's end.
// A value of one prediction; one thread.
class Machines {
 public:
  Machines(const HostMap& hosts, const LinkCosts& costs);

  // Runs the program until all ranks are done; false if they wait for each other for ever.
  bool Run(CallProgram* program);

  const std::vector<PredictedHost>& hosts() const { return totals_; }
  const std::vector<int64_t>& link_bytes() const { return link_bytes_; }
  double time_us() const { return ended_us_ - begun_us_; }

 private:
  struct Message {
    double at;
    double us;
    int task;
  };
  struct Rank {
    std::deque<Message> inbox;
    double messages_us = 0;
    double copies_us = 0;
    double patience_us = 0;  // before it yields
    double released = -1;    // when its meeting ends; -1: unknown
    double last_arrival = 0;
    bool in_meeting = false;
    bool done = false;
  };
  struct Core {
    std::vector<int> ranks;
    size_t current = 0;
    int unfinished = 0;
    uint64_t stamp = 0;     // of its event; older ones are void
    double yields_at = -1;  // while its rank waits: when it yields; -1: it runs
  };
  struct Host {
    double sender_free = 0;
    double receiver_free = 0;
    double sender_us = 0;
    double receiver_us = 0;
    int in_meeting = 0;
  };
  using Event = std::tuple<double, int, uint64_t>;  // time, core, stamp

  Core& CoreOf(int rank) {
    return cores_[static_cast<size_t>(core_of_[static_cast<size_t>(rank)])];
  }
  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  void Wake(int core, double at);
  void Continue(int core, double now);
  // One thing that the rank can do at `now`; false: it waits. *until: when it is done with it.
  bool Step(int rank, double now, double* until);
  void Send(int rank, const Action& action, double now);
  void Deliver(int rank);
  void Meet(int rank, const Action& action, double now);
  void Yield(int core);
  void Mark(int rank, Action::Kind kind, double now);
  void AddUp();

  const HostMap& hosts_;
  const LinkCosts& costs_;
  const double turn_us_;
  CallProgram* program_ = nullptr;
  std::vector<Rank> ranks_;
  std::vector<Core> cores_;
  std::vector<int> core_of_;
  std::vector<Host> devices_;
  std::vector<PredictedHost> totals_;
  std::vector<int64_t> link_bytes_;
  std::vector<bool> met_;  // [a * ranks + b]: a message went from a to b, or from b to a
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double begun_us_ = -1;
  double ended_us_ = 0;
  int unfinished_ = 0;  // ranks that have not ended the call
  int64_t idle_turns_ = 0;
};

}  // namespace collops::ucx
