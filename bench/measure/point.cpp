#include "measure/point.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <sstream>

namespace bench {
namespace {

constexpr const char* kOperators[] = {"all_gather_v", "reduce_scatter_v", "all_reduce",
                                      "broadcast",    "all_to_all_v",     "send_recv"};
constexpr const char* kDTypes[] = {"f32", "bf16"};
constexpr int64_t kMostBytes = int64_t{1} << 30;  // MPI's counts are int
constexpr int kMostIterations = 4096;
constexpr int kMostShare = 1000;

std::vector<std::string> Split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

template <typename Enum, size_t kNames>
bool ParseName(const char* const (&names)[kNames], const std::string& text, Enum* value) {
  for (size_t i = 0; i < kNames; ++i) {
    if (text != names[i]) continue;
    *value = static_cast<Enum>(i);
    return true;
  }
  return false;
}

// A whole number from `least` to `most`, with k (1024) or m behind it if `units`.
bool ParseNumber(const std::string& text, bool units, int64_t least, int64_t most, int64_t* value) {
  char* end = nullptr;
  *value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *value < 0 || *value > most) return false;
  const std::string unit = end;
  if (units && unit == "k") *value <<= 10;
  if (units && unit == "m") *value <<= 20;
  const bool known = unit.empty() || (units && (unit == "k" || unit == "m"));
  return known && *value >= least && *value <= most;
}

bool ParseShares(const std::string& text, std::vector<int>* shares) {
  for (const std::string& part : Split(text, ':')) {
    int64_t share = 0;
    if (!ParseNumber(part, false, 1, kMostShare, &share)) return false;
    shares->push_back(static_cast<int>(share));
  }
  return shares->size() >= 2 && shares->size() <= kMaxRanks;
}

// The last rank has the rest.
void ShareOut(Point* point) {
  const int64_t sum = std::accumulate(point->shares.begin(), point->shares.end(), int64_t{0});
  int64_t begin = 0;
  for (const int share : point->shares) {
    point->counts.push_back(point->elements * share / sum);
    point->displs.push_back(begin);
    begin += point->counts.back();
  }
  point->counts.back() += point->elements - begin;
}

bool Refuse(const char* what, const std::string& got) {
  std::fprintf(stderr, "%s, got \"%s\"\n", what, got.c_str());
  return false;
}

}  // namespace

const char* Name(Operator op) {
  return kOperators[static_cast<size_t>(op)];
}

const char* Name(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}

int64_t SizeOf(DType dtype) {
  return dtype == DType::kFloat32 ? 4 : 2;
}

int64_t Point::XCount(int rank) const {
  return op == Operator::kAllGatherV ? counts[static_cast<size_t>(rank)] : elements;
}

int64_t Point::OutputCount(int rank) const {
  const int64_t own = counts[static_cast<size_t>(rank)];
  if (op == Operator::kReduceScatterV) return own;
  return op == Operator::kAllToAllV ? own * ranks() : elements;
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  if (argc != 7) {
    std::fprintf(stderr,
                 "usage: %s OPERATOR DTYPE BYTES SHARES ITERATIONS WAY\n"
                 "such as: all_gather_v f32 64,16k,4m 3:5 0 all\n",
                 argc > 0 ? argv[0] : "");
    return false;
  }
  Point point;
  if (!ParseName(kOperators, argv[1], &point.op)) return Refuse("unknown OPERATOR", argv[1]);
  if (!ParseName(kDTypes, argv[2], &point.dtype)) return Refuse("DTYPE is f32 or bf16", argv[2]);
  arguments->shares = argv[4];
  if (!ParseShares(argv[4], &point.shares)) {
    return Refuse("SHARES is a number for each of 2 to 8 ranks, such as 3:5", argv[4]);
  }
  int64_t iterations = 0;
  if (!ParseNumber(argv[5], false, 0, kMostIterations, &iterations)) {
    return Refuse("ITERATIONS is a whole number up to 4096, or 0", argv[5]);
  }
  point.iterations = static_cast<int>(iterations);
  const int64_t least = kMaxRanks * SizeOf(point.dtype);
  for (const std::string& text : Split(argv[3], ',')) {
    Point sized = point;
    if (!ParseNumber(text, true, least, kMostBytes, &sized.bytes)) {
      return Refuse("BYTES is a list of sizes from 32 to 1024m, such as 64,16k", argv[3]);
    }
    sized.elements = sized.bytes / SizeOf(sized.dtype);
    ShareOut(&sized);
    arguments->points.push_back(sized);
  }
  if (std::string(argv[6]) != "all") arguments->ways = Split(argv[6], ',');
  return !arguments->points.empty() || Refuse("BYTES is a list of sizes", argv[3]);
}

}  // namespace bench
