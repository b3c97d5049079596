#include "measure.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>

namespace bench {
namespace {

constexpr const char* kOperators[] = {"all_gather_v", "reduce_scatter_v", "all_reduce", "broadcast",
                                      "all_to_all_v", "send_recv",        "send"};
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

constexpr unsigned kLimitS = 120;    // of a point; then SIGALRM ends the process
constexpr double kEnoughUs = 2.5e6;  // after which a point gets no further calls
constexpr int kCallsPerLook = 8;     // at that time
constexpr int64_t kLine = 64;

// The times of a point, of all its calls.
struct Times {
  std::vector<double> own;    // of the slowest rank's call
  std::vector<double> whole;  // from the first rank's begin to the last one's end
};

int Iterations(const Point& point) {
  if (point.iterations > 0) return point.iterations;
  if (point.bytes <= 16 << 10) return 2000;
  if (point.bytes <= 256 << 10) return 500;
  return point.bytes <= 4 << 20 ? 100 : 11;
}

// Element `position` of a rank's x: a whole number below 31, another one on the next rank and at
// the next position. The sum over 8 ranks is exact in bfloat16.
float Input(int rank, int64_t position) {
  return static_cast<float>((position * 7 + position / 31 * 5 + rank * 11) % 31);
}

float Expected(const Point& point, int rank, int64_t i) {
  const int ranks = point.ranks();
  const auto sum_at = [&](int64_t position) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += Input(r, position);
    return sum;
  };
  const int64_t begin = point.displs[static_cast<size_t>(rank)];
  const int64_t own = point.counts[static_cast<size_t>(rank)];
  switch (point.op) {
    case Operator::kAllGatherV: {
      int owner = ranks - 1;
      while (point.displs[static_cast<size_t>(owner)] > i) --owner;
      return Input(owner, i - point.displs[static_cast<size_t>(owner)]);
    }
    case Operator::kReduceScatterV:
      return sum_at(begin + i);
    case Operator::kAllReduce:
      return sum_at(i);
    case Operator::kAllToAllV:
      return Input(static_cast<int>(i / own), begin + i % own);
    case Operator::kBroadcast:
    case Operator::kSend:
      return Input(0, i);
    case Operator::kSendRecv:
      return Input((rank + ranks - 1) % ranks, i);
  }
  return -1;
}

// Writes this rank's x.
void Fill(const Point& point, int rank, void* x) {
  for (int64_t i = 0; i < point.XCount(rank); ++i) {
    if (point.dtype == DType::kFloat32) {
      static_cast<float*>(x)[i] = Input(rank, i);
    } else {
      static_cast<uint16_t*>(x)[i] = ToBFloat16(Input(rank, i));
    }
  }
}

// Makes every element a NaN.
void Poison(const Point& point, int64_t count, void* elements) {
  std::memset(elements, 0xff, static_cast<size_t>(count * SizeOf(point.dtype)));
}

// Whether the output of `rank` is what the call must make of all ranks' x, bit for bit.
bool IsRight(const Point& point, int rank, const void* output) {
  for (int64_t i = 0; i < point.OutputCount(rank); ++i) {
    const float expected = Expected(point, rank, i);
    if (point.dtype == DType::kFloat32) {
      if (std::memcmp(static_cast<const float*>(output) + i, &expected, sizeof(float)) != 0) {
        return false;
      }
    } else if (static_cast<const uint16_t*>(output)[i] != ToBFloat16(expected)) {
      return false;
    }
  }
  return true;
}

// Writes a word of each line of x anew, as a program does between two calls: a peer that still has
// the line must fetch it again.
void Rewrite(void* x, int64_t bytes) {
  auto* const begin = static_cast<volatile char*>(x);
  for (int64_t at = 0; at < bytes; at += kLine) begin[at] = begin[at];
}

// Runs the warm-up and the timed calls; returns how many are timed.
int RunCalls(const Point& point, const Call& call, void* x, int64_t x_bytes, Board* board) {
  const int wanted = Iterations(point);
  const int warm_up = std::clamp(wanted / 10, 2, 200);
  const double start = NowUs();
  Sample* const samples = board->samples(board->rank());
  for (int i = -warm_up; i < wanted; ++i) {
    const bool looks = i > 0 && i % kCallsPerLook == 0;
    if (looks && !board->GoesOn(NowUs() - start < kEnoughUs)) return i;
    Rewrite(x, x_bytes);
    board->Barrier();
    const double begin = NowUs();
    call();
    const double end = NowUs();
    if (i >= 0) samples[i] = {begin, end};
  }
  return wanted;
}

Times TimesOf(int iterations, const Board& board) {
  Times times;
  for (int i = 0; i < iterations; ++i) {
    double own = 0;
    double begin = board.samples(0)[i].begin_us;
    double end = board.samples(0)[i].end_us;
    for (int rank = 0; rank < board.ranks(); ++rank) {
      const Sample& sample = board.samples(rank)[i];
      own = std::max(own, sample.end_us - sample.begin_us);
      begin = std::min(begin, sample.begin_us);
      end = std::max(end, sample.end_us);
    }
    times.own.push_back(own);
    times.whole.push_back(end - begin);
  }
  return times;
}

// "MIN, MEDIAN, P95"
std::string Statistics(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](size_t percent) { return times[(times.size() - 1) * percent / 100]; };
  char text[96];
  std::snprintf(text, sizeof(text), "%.3f, %.3f, %.3f", at(0), at(50), at(95));
  return text;
}

std::string Head(const Arguments& arguments, const Point& point, const Way& way) {
  char text[256];
  std::snprintf(text, sizeof(text),
                "{\"operator\": \"%s\", \"dtype\": \"%s\", \"bytes\": %lld, \"shares\": \"%s\", "
                "\"way\": \"%s\"",
                kOperators[static_cast<size_t>(point.op)],
                kDTypes[static_cast<size_t>(point.dtype)], static_cast<long long>(point.bytes),
                arguments.shares.c_str(), way.name.c_str());
  return text;
}

void Print(const std::string& head, const Times& times, const double (&flags_us)[2], int wrong,
           const std::string& tail, const Board& board) {
  std::string cores;
  for (const int core : board.cores()) {
    cores += (cores.empty() ? "" : ", ") + std::to_string(core);
  }
  std::printf(
      "%s, \"iterations\": %zu, \"us\": [%s], \"whole_us\": [%s], \"flag_us\": [%.3f, %.3f], "
      "\"cores\": [%s], \"wrong_ranks\": %d%s}\n",
      head.c_str(), times.own.size(), Statistics(times.own).c_str(),
      Statistics(times.whole).c_str(), flags_us[0], flags_us[1], cores.c_str(), wrong,
      tail.c_str());
  std::fflush(stdout);
}

// Counts the user-space instructions of this thread, where the machine lets it.
class Instructions {
 public:
  Instructions() {
    perf_event_attr wanted = {};
    wanted.size = sizeof(wanted);
    wanted.type = PERF_TYPE_HARDWARE;
    wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
    wanted.exclude_kernel = 1;
    wanted.exclude_hv = 1;
    descriptor_ = static_cast<int>(syscall(SYS_perf_event_open, &wanted, 0, -1, -1, 0));
  }
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;
  ~Instructions() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  bool counts() const { return descriptor_ >= 0; }
  int64_t Now() const {
    int64_t count = 0;
    return read(descriptor_, &count, sizeof(count)) == sizeof(count) ? count : 0;
  }

 private:
  int descriptor_;
};

}  // namespace

// By name, so that a program from outside can count it and nothing else.
extern "C" __attribute__((noinline)) void CountedCall(const Call* call) {
  (*call)();
}

namespace {

// The median of the instructions of a call of rank 0, which comes last and so waits for nobody; -1
// where the machine counts none. Under callgrind (--toggle-collect=CountedCall) all is slower.
int64_t CountInstructions(const Call& call, Board* board) {
  constexpr int kCalls = 200;
  constexpr double kLateUs = 3000;
  const Instructions instructions;
  std::vector<int64_t> counts;
  for (int i = 0; i < kCalls; ++i) {
    board->Barrier();
    if (board->rank() != 0) {
      call();
      continue;
    }
    for (const double start = NowUs(); NowUs() < start + kLateUs;) {
    }
    const int64_t before = instructions.Now();
    CountedCall(&call);
    counts.push_back(instructions.Now() - before);
  }
  if (counts.empty() || !instructions.counts()) return -1;
  std::nth_element(counts.begin(), counts.begin() + kCalls / 2, counts.end());
  return counts[kCalls / 2];
}

// Returns whether all ranks' results were right.
bool MeasureWay(const std::string& head, const Point& point, const Way& way, bool counts,
                Board* board) {
  const int rank = board->rank();
  Buffers buffers;
  buffers.x = PlainMemory(point.XBytes(rank));
  buffers.output = point.in_place() ? buffers.x : PlainMemory(point.OutputBytes(rank));
  const Call call = way.make(point, rank, &buffers);
  void* const x = buffers.x.get();
  Fill(point, rank, x);
  const bool in_place = point.in_place();
  if (!in_place) Poison(point, point.OutputCount(rank), buffers.output.get());
  // Only the root writes a broadcast's vector.
  const int64_t rewritten = in_place && rank != 0 ? 0 : point.XBytes(rank);

  double flags_us[2];
  flags_us[0] = board->FlagUs();
  const int iterations = RunCalls(point, call, x, rewritten, board);
  flags_us[1] = board->FlagUs();

  // One more call, into a poisoned output.
  if (!in_place || rank != 0) Poison(point, point.OutputCount(rank), buffers.output.get());
  board->Barrier();
  call();
  const int wrong = board->CountWrong(IsRight(point, rank, buffers.output.get()));
  std::string tail;
  if (counts) tail = ", \"instructions\": " + std::to_string(CountInstructions(call, board));
  if (rank == 0) Print(head, TimesOf(iterations, *board), flags_us, wrong, tail, *board);
  board->Barrier();
  return wrong == 0;
}

}  // namespace

int64_t SizeOf(DType dtype) {
  return dtype == DType::kFloat32 ? 4 : 2;
}

int64_t Point::XCount(int rank) const {
  if (op == Operator::kSend) return rank == 0 ? elements : 0;
  return op == Operator::kAllGatherV ? counts[static_cast<size_t>(rank)] : elements;
}

int64_t Point::OutputCount(int rank) const {
  const int64_t own = counts[static_cast<size_t>(rank)];
  if (op == Operator::kSend) return rank == 1 ? elements : 0;
  if (op == Operator::kReduceScatterV) return own;
  return op == Operator::kAllToAllV ? own * ranks() : elements;
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  arguments->counts = argc == 8 && std::string(argv[7]) == "count";
  if (argc != (arguments->counts ? 8 : 7)) {
    std::fprintf(stderr,
                 "usage: %s OPERATOR DTYPE BYTES SHARES ITERATIONS WAY [count]\n"
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

std::shared_ptr<void> PlainMemory(int64_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t pages = std::max<size_t>(1, (static_cast<size_t>(bytes) + kPage - 1) / kPage);
  return {std::aligned_alloc(kPage, pages * kPage), std::free};
}

int Measure(const Arguments& arguments, const std::vector<Way>& ways, Board* board) {
  bool right = true;
  for (const std::string& name : arguments.ways) {
    const auto has_name = [&](const Way& way) { return way.name == name; };
    if (std::any_of(ways.begin(), ways.end(), has_name)) continue;
    std::fprintf(stderr, "there is no way \"%s\" to make this call\n", name.c_str());
    return kArguments;
  }
  for (const Point& point : arguments.points) {
    for (const Way& way : ways) {
      const auto& wanted = arguments.ways;
      const bool named = std::find(wanted.begin(), wanted.end(), way.name) != wanted.end();
      if (!wanted.empty() && !named) continue;
      const std::string head = Head(arguments, point, way);
      alarm(kLimitS);
      if (way.unsupported.empty()) {
        right = MeasureWay(head, point, way, arguments.counts, board) && right;
      } else if (board->rank() == 0) {
        std::printf("%s, \"unsupported\": \"%s\"}\n", head.c_str(), way.unsupported.c_str());
      }
    }
  }
  alarm(0);
  return right ? 0 : kWrong;
}

}  // namespace bench
