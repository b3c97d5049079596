// Times the ways of a library to make a call. The library's program gives the ways; this measures
// them all alike, checks their results, and prints a line of JSON for each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/board.h"
#include "measure/point.h"

namespace bench {

// Where a rank's tensors lie. A way may replace them by memory of its library's. Of a broadcast
// both are the same.
struct Buffers {
  std::shared_ptr<void> x;
  std::shared_ptr<void> output;
};

// Whole pages, not yet written to.
std::shared_ptr<void> PlainMemory(int64_t bytes);

// One call with its tensors, on one rank; may be run again and again.
using Call = std::function<void()>;

struct Way {
  std::string name;
  // Makes the call of a point; a call that is empty, on all ranks alike, cannot run.
  std::function<Call(const Point& point, int rank, Buffers* buffers)> make;
  std::string unsupported = {};  // why this way cannot run; empty: it can
};

// Exit statuses of a program's ranks.
constexpr int kWrong = 1;      // a result is wrong; all ranks know it
constexpr int kArguments = 2;  // the arguments are; all ranks know it
constexpr int kFailed = 3;     // a call failed; the other ranks may wait for this one

// Measures the wanted ways of all points on this rank, and returns its exit status. A point that
// takes minutes ends the process.
int Measure(const Arguments& arguments, const std::vector<Way>& ways, Board* board);

}  // namespace bench
