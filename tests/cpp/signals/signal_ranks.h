// What one rank does in a step: the order in which control/step.cpp, control/waiter.h and
// shm/exchange.cpp use the functions of control/signals.h and shm/pair_wire.h, which are the
// library's own.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "collops/comm/control/signals.h"
#include "signals/signal_board.h"

namespace signals {

using collops::control::HasFinished;
using collops::control::HeadKind;
using collops::control::IsCall;
using collops::control::IsRefusal;
using collops::control::NumberOf;
using collops::control::ParityOf;
using collops::control::PublishFinished;
using collops::control::StepWord;
using FailureOrder = collops::control::FailureOrder<ModelMemory>;

// How a step ended for a rank.
enum class End { kOk, kRefused, kFailed };

// One rank, as its program runs.
class Rank {
 public:
  Rank(Board* board, int rank) : board_(board), rank_(rank), number_(board->group.steps_before) {}

  uint64_t number() const { return number_; }

  // Step::Begin(). False: the group has failed.
  bool Begin() {
    Explorer::Current().Forget(number_ * 2 + (behind_ ? 1 : 0));
    if (!CatchUp()) return false;
    ++number_;
    awaited_.clear();
    for (int r = 0; r < board_->group.size; ++r) {
      if (r != rank_) awaited_.push_back(r);
    }
    return !HasFailed();
  }
  // Step::Publish(), once the record is written.
  void Publish(uint64_t record) {
    RecordOf(rank_).Write(record);
    PublishHead(&HeadOf(rank_), StepWord(number_, HeadKind::kCall), number_,
                number_ + static_cast<uint64_t>(rank_));
  }
  // Step::Refuse().
  bool Refuse() {
    if (!CatchUp()) return false;
    ++number_;
    RecordOf(rank_).Write(Data(rank_, number_));  // the reason
    PublishRefusal(&HeadOf(rank_), number_);
    behind_ = true;
    PublishFinished(words(rank_).finished.get(), number_);
    return true;
  }
  // Step::AwaitAll(). `on_arrival(rank, record)`.
  template <typename OnArrival>
  End AwaitAll(const OnArrival& on_arrival) {
    while (!awaited_.empty()) {
      auto next = awaited_.end();
      const bool came = Until([&] {
        next = std::find_if(awaited_.begin(), awaited_.end(),
                            [&](int r) { return HasBegun(HeadOf(r), number_); });
        return next != awaited_.end();
      });
      if (!came) return End::kFailed;
      const int peer = *next;
      awaited_.erase(next);
      if (!Compare(peer)) return End::kRefused;
      on_arrival(peer, RecordOf(peer).Read());
    }
    return End::kOk;
  }
  bool PreviousFinished() const {
    for (int r = 0; r < board_->group.size; ++r) {
      if (!HasFinished(*words(r).finished, number_ - 1)) return false;
    }
    return true;
  }
  // Step::End() and EndTogether().
  End Finish() {
    if (FailureOrder::HasFailedMeanwhile(*board_->failed_rank, number_, step_of())) {
      return End::kFailed;
    }
    PublishFinished(words(rank_).finished.get(), number_);
    return End::kOk;
  }
  End FinishTogether() {
    if (Finish() == End::kFailed) return End::kFailed;
    for (int r = 0; r < board_->group.size; ++r) {
      if (!Until([&] { return HasFinished(*words(r).finished, number_); })) return End::kFailed;
    }
    return End::kOk;
  }

  // Endpoint::PublishFailure().
  template <typename WriteReason>
  void Fail(uint64_t step, const WriteReason& write_reason) {
    FailureOrder::Publish(board_->failed_rank.get(), words(rank_).failed_step.get(), rank_, step,
                          step_of(), write_reason);
  }
  // Which rank's failure counts, for a rank that has seen that there is one.
  int Reporter() const {
    return static_cast<int>(board_->failed_rank->load(std::memory_order_acquire)) - 1;
  }

  // Waiter::Until(). False: the group has failed, and `ready` is not true.
  template <typename Ready>
  bool Until(const Ready& ready) {
    bool is_ready = false;
    Explorer::Current().Await([&] { return (is_ready = ready()) || HasFailed(); });
    return is_ready || ready();
  }

  RankWords& words(int rank) const { return board_->ranks[static_cast<size_t>(rank)]; }
  const Group& group() const { return board_->group; }
  void Expect(bool holds, const std::string& what) const {
    Explorer::Current().Expect(holds, what + " in step " + std::to_string(number_));
  }

 private:
  Head& HeadOf(int rank) const { return words(rank).heads[ParityOf(number_)]; }
  const Plain& RecordOf(int rank) const { return words(rank).records[ParityOf(number_)]; }
  bool CatchUp() {
    if (!behind_) return true;
    for (int r = 0; r < board_->group.size; ++r) {
      if (!Until([&] { return HasBegun(HeadOf(r), number_); })) return false;
    }
    behind_ = false;
    return true;
  }
  // False: the peer has refused the step.
  bool Compare(int peer) {
    const Head& theirs = HeadOf(peer);
    const uint64_t word = theirs.step.load(std::memory_order_acquire);
    if (IsRefusal(word)) {
      behind_ = !awaited_.empty();
      Expect(RecordOf(peer).Read() == Data(peer, number_), "the wrong reason");
      PublishFinished(words(rank_).finished.get(), number_);
      return false;
    }
    Expect(NumberOf(word) == number_ && IsCall(word), "a peer is in a call that cannot be");
    Expect(theirs.digest.load(std::memory_order_relaxed) == number_, "another step's digest");
    Expect(theirs.balance.load(std::memory_order_relaxed) == number_ + static_cast<uint64_t>(peer),
           "another step's balance");
    return true;
  }
  bool HasFailed() const {
    return FailureOrder::HasFailed(*board_->failed_rank, number_, step_of());
  }
  StepOf step_of() const { return {board_}; }

  Board* board_;
  int rank_;
  uint64_t number_;
  std::vector<int> awaited_;
  bool behind_ = false;
};

// Searches all orders of `program`, which every rank runs.
template <typename Program>
std::string SearchIn(Explorer* explorer, const char* what, const Group& group,
                     const Program& program, double least_executions) {
  Board board(group);
  std::vector<Explorer::Program> programs;
  for (int r = 0; r < group.size; ++r) {
    programs.emplace_back([&board, &program, r] {
      Rank rank(&board, r);
      program(r, &rank);
    });
  }
  return Explore(explorer, what, programs, least_executions);
}
template <typename Program>
std::string Search(const char* what, const Group& group, const Program& program,
                   double least_executions = 0, const Weakened& weakened = {}) {
  Explorer explorer(weakened);
  return SearchIn(&explorer, what, group, program, least_executions);
}
// With a program that has shared memory of its own.
template <typename Program>
std::string SearchShared(const char* what, const Group& group, double least_executions = 0,
                         const Weakened& weakened = {}) {
  Explorer explorer(weakened);
  const Program program(group);
  return SearchIn(&explorer, what, group, program, least_executions);
}

}  // namespace signals
