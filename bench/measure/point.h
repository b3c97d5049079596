// What a program measures, and how the elements lie on the ranks. All libraries use this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

constexpr int kMaxRanks = 8;

enum class Operator { kAllGatherV, kReduceScatterV, kAllReduce, kBroadcast, kAllToAllV, kSendRecv };
enum class DType { kFloat32, kBFloat16 };

// The names that the arguments and the results have.
const char* Name(Operator op);
const char* Name(DType dtype);
int64_t SizeOf(DType dtype);

// The vector of `elements` elements is shared out among the ranks: rank r has counts[r], which
// begin at displs[r]. Only the calls whose name ends in V share it unevenly; of the others every
// rank has all of it. For all_to_all_v the counts are the parts of each rank's x for the ranks.
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
  int64_t XCount(int rank) const;
  int64_t OutputCount(int rank) const;
  int64_t XBytes(int rank) const { return XCount(rank) * SizeOf(dtype); }
  int64_t OutputBytes(int rank) const { return OutputCount(rank) * SizeOf(dtype); }
};

// The arguments OPERATOR DTYPE BYTES SHARES ITERATIONS WAY; BYTES and WAY may be lists.
struct Arguments {
  std::vector<Point> points;      // one for each size
  std::vector<std::string> ways;  // empty: "all"
  std::string shares;
};

// Reads them; on an error says on stderr what is wrong, and returns false.
bool Parse(int argc, char** argv, Arguments* arguments);

}  // namespace bench
