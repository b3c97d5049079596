// The streams of several fake devices as queues, which run in one thread, in the order that a test
// chooses: a missing wait gives wrong results every time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace stream_queues {

// Which stream runs next where marks leave the choice.
enum class Order {
  kCallersFirst,  // the callers' streams as early as they may, the side streams as late
  kSideFirst,     // the other way round
  kMixed,         // callers first on even ranks, the side streams first on odd ones
  kShuffled,
};

constexpr Order kOrders[] = {Order::kCallersFirst, Order::kSideFirst, Order::kMixed,
                             Order::kShuffled};

struct Task {
  std::function<void()> run;
  // Asked while the task is the first of its stream; null: it may always run.
  std::function<bool()> may_run = nullptr;
};

// Owns the streams. Nothing runs before Run().
class Queues {
 public:
  void* NewStream(int rank, bool side) {
    streams_.push_back(std::make_unique<Stream>(Stream{rank, side, {}}));
    return streams_.back().get();
  }

  static void Put(void* stream, Task task) {
    static_cast<Stream*>(stream)->tasks.push_back(std::move(task));
  }

  static size_t Waiting(const void* stream) {
    return static_cast<const Stream*>(stream)->tasks.size();
  }

  // Runs all that is on the streams. False: what is left waits for ever.
  bool Run(Order order) {
    while (Stream* const next = Next(order)) {
      const Task task = std::move(next->tasks.front());
      next->tasks.pop_front();
      task.run();
    }
    size_t left = 0;
    for (const auto& stream : streams_) left += stream->tasks.size();
    return left == 0;
  }

  // A mistake that a task has found.
  void Complain(const std::string& what) { complaints_.push_back(what); }
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  struct Stream {
    int rank;
    bool side;
    std::deque<Task> tasks;
  };

  // Every first task is asked, also those that are not chosen: a collective thus learns that a rank
  // has arrived.
  Stream* Next(Order order) {
    std::vector<Stream*> ready;
    for (const auto& stream : streams_) {
      if (stream->tasks.empty()) continue;
      const Task& first = stream->tasks.front();
      if (first.may_run == nullptr || first.may_run()) ready.push_back(stream.get());
    }
    if (ready.empty()) return nullptr;
    if (order == Order::kShuffled) return ready[random_() % ready.size()];
    for (Stream* const stream : ready) {
      const bool side_first =
          order == Order::kSideFirst || (order == Order::kMixed && stream->rank % 2 == 1);
      if (stream->side == side_first) return stream;
    }
    return ready.front();
  }

  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::string> complaints_;
  std::minstd_rand random_{16};
};

}  // namespace stream_queues
