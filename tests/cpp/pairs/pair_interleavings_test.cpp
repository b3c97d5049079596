// Every order in which 2 or 3 ranks can post, poll and receive, for a few transfers: which messages
// arrive, and that all do.
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "pairs/queue_wire.h"

namespace {

using collops::ERROR_INVALID_PARAM;
using collops::kAnySource;
using pairs::Buffer;
using pairs::Error;
using pairs::Pattern;
using pairs::QueueRanks;
using pairs::Transfer;
using pairs::TransferHandle;

// One call of a rank's program.
struct Op {
  Transfer::Way way;
  int peer;
  int32_t tag;
  int64_t bytes;
  bool refused = false;
};
Op S(int peer, int32_t tag, int64_t bytes) {
  return {Transfer::kSend, peer, tag, bytes};
}
Op R(int peer, int32_t tag, int64_t bytes) {
  return {Transfer::kRecv, peer, tag, bytes};
}
Op Refused(Op op) {
  op.refused = true;
  return op;
}
using Programs = std::vector<std::vector<Op>>;  // by rank

uint32_t Seed(int rank, size_t op) {
  return static_cast<uint32_t>(rank) * 100 + static_cast<uint32_t>(op);
}

// One run of the programs, step by step.
class Run {
 public:
  explicit Run(const Programs& programs)
      : programs_(programs),
        size_(static_cast<int>(programs.size())),
        ranks_(size_),
        next_(programs.size()),
        handles_(programs.size()),
        buffers_(programs.size()) {}
  // A rank posts its next call, a rank polls, or a link delivers one item in one direction.
  int NumSteps() const { return 2 * size_ + 3 * size_ * size_; }
  bool Take(int step) {
    if (step < size_) return Post(step);
    step -= size_;
    if (step < size_) return ranks_[step].Poll();
    step -= size_;
    return ranks_.net.Deliver(step / 3 / size_, step / 3 % size_, step % 3);
  }
  // Identifies a state: each rank's own history, which determines what is under way.
  std::string Signature() const {
    std::string text;
    for (const pairs::QueueWire& wire : ranks_.wires) text += std::to_string(wire.history) + ",";
    for (const pairs::Link& link : ranks_.net.links) {
      for (const size_t count :
           {link.flying_envelopes.size(), link.flying_verdicts.size(), link.flying_chunks.size()}) {
        text += static_cast<char>('0' + count);
      }
    }
    return text;
  }
  // Checks a state without a next step: all is done, and each receive has a message that it may
  // have.
  std::string Judge() {
    for (int rank = 0; rank < size_; ++rank) {
      const auto at = static_cast<size_t>(rank);
      if (ranks_[rank].HasWork()) return "rank " + std::to_string(rank) + " is not through";
      for (size_t i = 0; i < handles_[at].size(); ++i) {
        const Op& op = programs_[at][i];
        if (op.refused) {
          if (op.way == Transfer::kRecv) ++taken_[{rank, op.peer, op.tag}];
          continue;
        }
        int source = -1;
        const collops::Status status = ranks_[rank].Collect(handles_[at][i], &source);
        if (!status.ok() && status.code() != collops::ERROR_RANK_MISMATCH) return status.message();
        if (op.way == Transfer::kSend) continue;
        const std::string fault = CheckReceive(rank, op, source, status.ok(), &buffers_[at][i]);
        if (!fault.empty()) return fault;
      }
    }
    return "";
  }

 private:
  bool Post(int rank) {
    const auto at = static_cast<size_t>(rank);
    const size_t i = next_[at];
    if (i == programs_[at].size()) return false;
    ++next_[at];
    const Op& op = programs_[at][i];
    const bool sends = op.way == Transfer::kSend;
    buffers_[at].emplace_back(sends ? Buffer(Pattern(op.bytes, Seed(rank, i))) : Buffer(op.bytes));
    ranks_.wires[at].Note('p', 0, i);
    const Transfer transfer =
        pairs::Make(op.way, op.peer, op.tag, buffers_[at].back().data(), op.bytes);
    if (op.refused) {
      ranks_[rank].Refuse(transfer, Error(ERROR_INVALID_PARAM, "no"));
      handles_[at].emplace_back();
    } else {
      handles_[at].push_back(ranks_[rank].Post(transfer));
    }
    return true;
  }
  // Per source and tag, messages must arrive in order: the n-th receive took the n-th message.
  std::string CheckReceive(int rank, const Op& op, int source, bool whole, Buffer* buffer) {
    size_t& count = taken_[{rank, source, op.tag}];
    const std::vector<Op>& theirs = programs_[static_cast<size_t>(source)];
    size_t seen = 0;
    for (size_t i = 0; i < theirs.size(); ++i) {
      const Op& sent = theirs[i];
      if (sent.way != Transfer::kSend || sent.peer != rank || sent.tag != op.tag) continue;
      if (seen++ < count) continue;
      ++count;
      if (sent.refused != !whole) return "the wrong message was refused";
      if (whole && !buffer->Holds(Pattern(op.bytes, Seed(source, i)))) return "the wrong bytes";
      return "";
    }
    return "a message that nobody sent";
  }

  const Programs& programs_;
  int size_;
  QueueRanks ranks_;
  std::vector<size_t> next_;
  std::vector<std::vector<TransferHandle>> handles_;
  std::vector<std::deque<Buffer>> buffers_;
  std::map<std::tuple<int, int, int32_t>, size_t> taken_;
};

// Visits every reachable state once; returns the first fault found, or nothing.
class Search {
 public:
  explicit Search(Programs programs) : programs_(std::move(programs)) {}
  std::string Go() {
    std::vector<int> path;
    Visit(&path);
    return found_;
  }
  size_t states() const { return seen_.size(); }

 private:
  void Visit(std::vector<int>* path) {
    const int steps = Run(programs_).NumSteps();
    bool moves = false;
    for (int step = 0; step < steps && found_.empty(); ++step) {
      Run run(programs_);
      for (const int earlier : *path) run.Take(earlier);
      if (!run.Take(step)) continue;
      moves = true;
      if (!seen_.insert(run.Signature()).second) continue;
      path->push_back(step);
      Visit(path);
      path->pop_back();
    }
    if (moves || !found_.empty()) return;
    Run run(programs_);
    for (const int earlier : *path) run.Take(earlier);
    found_ = run.Judge();
  }

  Programs programs_;
  std::set<std::string> seen_;
  std::string found_;
};

void ExpectGood(const char* what, const Programs& programs) {
  Search search(programs);
  EXPECT_EQ(search.Go(), "");
  std::printf("  %s: %zu states\n", what, search.states());
  EXPECT_TRUE(search.states() > 20);
}

TEST(TwoRanksThatBothSendFirst) {
  ExpectGood("small", {{S(1, 0, 4), R(1, 0, 4)}, {S(0, 0, 4), R(0, 0, 4)}});
  ExpectGood("long", {{S(1, 0, 20), R(1, 0, 4)}, {S(0, 0, 4), R(0, 0, 20)}});
}

TEST(OneTagInOrderAndTwoTagsAgainstIt) {
  ExpectGood("in order",
             {{S(1, 0, 4), S(1, 0, 4), S(1, 0, 20)}, {R(0, 0, 4), R(0, 0, 4), R(0, 0, 20)}});
  ExpectGood("against",
             {{S(1, 1, 4), S(1, 2, 20), S(1, 3, 4)}, {R(0, 3, 4), R(0, 2, 20), R(0, 1, 4)}});
  ExpectGood("two asked for", {{S(1, 1, 20), S(1, 2, 20)}, {R(0, 2, 20), R(0, 1, 20)}});
}

TEST(AnySourceOfThreeRanks) {
  ExpectGood("any, any", {{R(kAnySource, 0, 4), R(kAnySource, 0, 4)}, {S(0, 0, 4)}, {S(0, 0, 4)}});
  ExpectGood("any beside named", {{R(kAnySource, 0, 4), R(1, 1, 4)}, {S(0, 1, 4)}, {S(0, 0, 4)}});
}

TEST(RefusalsOfEitherSide) {
  ExpectGood("send", {{Refused(S(1, 0, 4)), S(1, 0, 4)}, {R(0, 0, 4), R(0, 0, 4)}});
  ExpectGood("recv", {{S(1, 0, 20), S(1, 0, 20)}, {Refused(R(0, 0, 20)), R(0, 0, 20)}});
  ExpectGood("both", {{Refused(S(1, 0, 4)), S(1, 0, 4)}, {Refused(R(0, 0, 4)), R(0, 0, 4)}});
}

}  // namespace
