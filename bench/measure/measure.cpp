#include "measure/measure.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "measure/elements.h"

namespace bench {
namespace {

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
                Name(point.op), Name(point.dtype), static_cast<long long>(point.bytes),
                arguments.shares.c_str(), way.name.c_str());
  return text;
}

void Print(const std::string& head, const Times& times, const double (&flags_us)[2], int wrong,
           const Board& board) {
  std::string cores;
  for (const int core : board.cores()) {
    cores += (cores.empty() ? "" : ", ") + std::to_string(core);
  }
  std::printf(
      "%s, \"iterations\": %zu, \"us\": [%s], \"whole_us\": [%s], \"flag_us\": [%.3f, %.3f], "
      "\"cores\": [%s], \"wrong_ranks\": %d}\n",
      head.c_str(), times.own.size(), Statistics(times.own).c_str(),
      Statistics(times.whole).c_str(), flags_us[0], flags_us[1], cores.c_str(), wrong);
  std::fflush(stdout);
}

// Returns whether all ranks' results were right.
bool MeasureWay(const std::string& head, const Point& point, const Way& way, Board* board) {
  const int rank = board->rank();
  Buffers buffers;
  buffers.x = PlainMemory(point.XBytes(rank));
  buffers.output =
      point.op == Operator::kBroadcast ? buffers.x : PlainMemory(point.OutputBytes(rank));
  const Call call = way.make(point, rank, &buffers);
  void* const x = buffers.x.get();
  Fill(point, rank, x);
  const bool in_place = point.op == Operator::kBroadcast;
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
  if (rank == 0) Print(head, TimesOf(iterations, *board), flags_us, wrong, *board);
  board->Barrier();
  return wrong == 0;
}

}  // namespace

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
        right = MeasureWay(head, point, way, board) && right;
      } else if (board->rank() == 0) {
        std::printf("%s, \"unsupported\": \"%s\"}\n", head.c_str(), way.unsupported.c_str());
      }
    }
  }
  alarm(0);
  return right ? 0 : kWrong;
}

}  // namespace bench
