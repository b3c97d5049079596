// Times the ways of a library to make a call. The program of a library gives its ways; all are
// measured alike: the same elements, barrier, clock and check, and a line of JSON for each.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bench {

constexpr int kMaxRanks = 8;
constexpr int kMostSamples = 4096;

enum class Operator {
  kAllGatherV,
  kReduceScatterV,
  kAllReduce,
  kBroadcast,
  kAllToAllV,
  kSendRecv,
  kSend
};
enum class DType { kFloat32, kBFloat16 };

int64_t SizeOf(DType dtype);

// The vector of `elements` elements is shared out among the ranks: rank r has counts[r], which
// begin at displs[r]. Only the calls whose name ends in V share it unevenly; of the others every
// rank has all of it. For all_to_all_v the counts are the parts of each rank's x for the ranks. Of
// send rank 0 has the vector, and rank 1 receives it; others have nothing.
struct Point {
  Operator op = Operator::kAllGatherV;
  DType dtype = DType::kFloat32;
  int64_t bytes = 0;
  std::vector<int> shares;  // one for each rank
  int iterations = 0;       // 0: as many as suit the size

  int64_t elements = 0;
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;

  int ranks() const { return static_cast<int>(shares.size()); }
  // What rank 0 writes is rank 0's x and the others' output.
  bool in_place() const { return op == Operator::kBroadcast; }
  int64_t XCount(int rank) const;
  int64_t OutputCount(int rank) const;
  int64_t XBytes(int rank) const { return XCount(rank) * SizeOf(dtype); }
  int64_t OutputBytes(int rank) const { return OutputCount(rank) * SizeOf(dtype); }
};

// The arguments OPERATOR DTYPE BYTES SHARES ITERATIONS WAY [count]; BYTES and WAY may be lists.
struct Arguments {
  std::vector<Point> points;      // one for each size
  std::vector<std::string> ways;  // empty: "all"
  std::string shares;
  bool counts = false;  // instructions, too
};

// Reads them; on an error says on stderr what is wrong, and returns false.
bool Parse(int argc, char** argv, Arguments* arguments);

// Rounds to the nearest, ties to even. Not for NaN, which no input has.
inline uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float FromBFloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

struct Sample {
  double begin_us;
  double end_us;
};

// What lies in the memory that the ranks share; all zero is its first state.
struct BoardMemory {
  alignas(128) std::atomic<unsigned> arrived;
  alignas(128) std::atomic<unsigned> phase;
  alignas(128) std::atomic<unsigned> wrong_ranks;
  alignas(128) std::atomic<unsigned> looks;  // at flags; ranks that take no part wait for the next
  alignas(128) std::atomic<int> goes_on;
  alignas(128) std::atomic<unsigned> flags[kMaxRanks][32];  // the first of each line
  alignas(128) double flag_us;
  alignas(128) int cores[kMaxRanks];
  alignas(128) Sample samples[kMaxRanks][kMostSamples];
};

// One rank's view of the memory beside the measured library, which it maps for the life of the
// process. Every function but Create(), Map() and samples() is called by all ranks and waits for
// them, however long.
class Board {
 public:
  // The descriptor of new memory that has no name, so a crash leaves nothing behind; -1 on error.
  static int Create();
  // Null on error.
  static BoardMemory* Map(int descriptor);

  // Pins this rank to core number rank % cores of those on which the process may run.
  Board(BoardMemory* memory, int rank, int ranks);

  void Barrier();
  // Rank 0's decision, told to all.
  bool GoesOn(bool rank_0_says);
  // How long a word takes from rank 0 to the farthest other rank, in microseconds: a virtual
  // machine's host moves the cores between cache domains. 0 if all ranks run on one core.
  double FlagUs();
  // How many ranks say that they are wrong.
  int CountWrong(bool right);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::vector<int> cores() const { return {memory_->cores, memory_->cores + ranks_}; }
  Sample* samples(int rank) const { return memory_->samples[rank]; }

 private:
  void Rest(double waited_us) const;
  double FlagUsTo(int other);
  void PassFlag(int other, int times);

  BoardMemory* const memory_;
  const int rank_;
  const int ranks_;
  bool has_own_core_ = false;
};

double NowUs();

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
