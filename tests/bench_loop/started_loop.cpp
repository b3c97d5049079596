// What calls cost that are started, and what they cost others: an AllGatherV of 2 ranks (processes
// of this program) before anything was started, after, with a message that nobody has sent
// outstanding, and started and waited for. In turns; prints a line per size with medians in
// microseconds.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "board.h"
#include "collops/comm/registry.h"
#include "two_ranks.h"

namespace {

using collops::Communicator;

// Each on a communicator of its own: what was started once, stays.
enum Way { kNever, kIdle, kOutstanding, kStarted, kNumWays };
constexpr const char* kDomains[kNumWays] = {"never", "idle", "outstanding", "started"};

void Demand(const collops::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "started_loop: %s\n", status.message().c_str());
  std::exit(1);
}

std::shared_ptr<Communicator> Connect(Way way, int rank) {
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = kDomains[way];
  spec.rank = rank;
  spec.rank_size = kRanks;
  std::shared_ptr<Communicator> communicator;
  Demand(collops::Registry::Instance().Get(spec, &communicator));
  Demand(communicator->Connect());
  return communicator;
}

// An AllGatherV of `bytes`, half from each rank.
class Gather {
 public:
  Gather(Communicator* communicator, int64_t bytes, int rank)
      : communicator_(communicator),
        agreement_("AllGatherV"),
        counts_{bytes / 2, bytes / 2},
        displs_{0, bytes / 2},
        x_(static_cast<size_t>(bytes / 2), static_cast<std::byte>(rank)),
        output_(static_cast<size_t>(bytes)) {
    call_.agreement = &agreement_;
    call_.dtype = collops::DType::kInt8;
    call_.x = x_.data();
    call_.output = output_.data();
    call_.recv_counts = counts_;
    call_.rdispls = displs_;
  }
  void Run() { Demand(communicator_->AllGatherV(call_)); }
  void StartAndWait() {
    Communicator::Handle handle;
    const auto body = [this] { return communicator_->AllGatherV(call_); };
    Demand(communicator_->Start("AllGatherV", body, &handle));
    Demand(communicator_->Wait(handle));
  }

 private:
  Communicator* communicator_;
  collops::Agreement agreement_;
  int64_t counts_[kRanks];
  int64_t displs_[kRanks];
  std::vector<std::byte> x_;
  std::vector<std::byte> output_;
  collops::AllGatherVCall call_;
};

double Time(Gather* gather, bool start, int calls, int rank, Board* board) {
  for (int i = 0; i < calls; ++i) {
    board->Barrier();
    const double begin = NowUs();
    start ? gather->StartAndWait() : gather->Run();
    board->samples[rank][i] = NowUs() - begin;
  }
  board->Barrier();
  const double median = board->Median(calls);
  board->Barrier();
  return median;
}

int RunRank(int rank, Board* board) {
  constexpr int kRounds = 15;
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (int way = 0; way < kNumWays; ++way) {
    communicators.push_back(Connect(static_cast<Way>(way), rank));
    Communicator::Handle handle;
    Communicator* const communicator = communicators.back().get();
    const auto barrier = [communicator] { return communicator->Barrier(); };
    if (way == kNever) continue;
    Demand(communicator->Start("Barrier", barrier, &handle));
    Demand(communicator->Wait(handle));
  }
  static char box[8];
  collops::Transfer receive;
  receive.way = collops::Transfer::kRecv;
  receive.peer = 1 - rank;
  receive.dtype = collops::DType::kInt8;
  receive.elements = receive.bytes = sizeof(box);
  receive.data = box;
  Communicator::Handle outstanding;
  Demand(communicators[kOutstanding]->StartMessages("Recv", &receive, 1, &outstanding));
  for (const int64_t bytes : {int64_t{1} << 10, int64_t{256} << 10, int64_t{4} << 20}) {
    const int calls = bytes < 4096 ? 3000 : bytes < (1 << 20) ? 300 : 20;
    double times[kNumWays][kRounds];
    for (int round = -1; round < kRounds; ++round) {
      for (int way = 0; way < kNumWays; ++way) {
        Gather gather(communicators[static_cast<size_t>(way)].get(), bytes, rank);
        times[way][std::max(round, 0)] = Time(&gather, way == kStarted, calls, rank, board);
      }
    }
    if (rank == 0) std::printf("%7lld bytes:", static_cast<long long>(bytes));
    for (int way = 0; way < kNumWays && rank == 0; ++way) {
      std::nth_element(times[way], times[way] + kRounds / 2, times[way] + kRounds);
      std::printf("  %s %.3f", kDomains[way], times[way][kRounds / 2]);
    }
    if (rank == 0) std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main() {
  return OnTwoRanks("started_loop", RunRank);
}
