// Times a Send and its Recv beside AllGatherV of as many bytes, between 2 ranks (processes of this
// program) by Execute, in turns. Prints a line per size and memory: microseconds of each, and how
// many AllGatherV a message costs. "halves": each rank has half of the bytes; "one owner": rank 0
// has all, as the sender has.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "board.h"
#include "collops/comm/registry.h"
#include "collops/operators/params.h"
#include "two_ranks.h"

namespace {

using collops::DType;

constexpr const char* kDomain = "message_loop";
enum What { kHalves, kOneOwner, kMessage, kNumWhats };

void Demand(const collops::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "message_loop: %s\n", status.message().c_str());
  std::exit(1);
}

template <typename Param>
Param Struct(int rank) {
  Param param;
  param.rank = rank;
  param.rankSize = kRanks;
  param.backend = "shm";
  param.commDomain = kDomain;
  return param;
}

std::unique_ptr<std::byte[]> plain_memory;
std::shared_ptr<collops::Window> window_memory;

std::byte* Memory(int rank, int64_t bytes, bool window) {
  if (!window) {
    plain_memory = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
    return plain_memory.get();
  }
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = kDomain;
  spec.rank = rank;
  spec.rank_size = kRanks;
  std::shared_ptr<collops::Communicator> communicator;
  Demand(collops::Registry::Instance().Get(spec, &communicator));
  Demand(communicator->AllocateWindow(bytes, &window_memory));
  return static_cast<std::byte*>(window_memory->data());
}

collops::TensorView View(void* data, DType dtype, int64_t count) {
  collops::TensorView view;
  view.desc.dtype = dtype;
  view.desc.shape = {count};
  view.data = data;
  return view;
}

// One operation with its tensors. The bytes that rank 0 sends differ per position and round.
struct Call {
  std::unique_ptr<collops::Operation> operation;
  std::unique_ptr<std::byte[]> y;  // of AllGatherV: gives the shape, never read
  collops::VariantPack pack;
  int64_t counts[kRanks] = {};
  int64_t displs[kRanks] = {};
  int64_t own = 0;

  void Plan() {
    uint64_t bytes = 0;
    Demand(operation->GetWorkspaceSize(pack, &bytes));
  }
  void Run() { Demand(operation->Execute(pack, nullptr, 0, nullptr)); }
};

void MakeGather(int rank, int64_t first, int64_t total, std::byte* x, std::byte* output,
                Call* call) {
  call->counts[0] = first;
  call->counts[1] = total - first;
  call->displs[1] = first;
  call->own = call->counts[rank];
  Demand(CreateOperation(Struct<collops::AllGatherVParam>(rank), &call->operation));
  call->pack.inputs = {View(x, DType::kInt8, call->own), View(&call->own, DType::kInt64, 1),
                       View(call->counts, DType::kInt64, kRanks),
                       View(call->displs, DType::kInt64, kRanks),
                       View(nullptr, DType::kFloat16, total)};
  call->y.reset(new std::byte[static_cast<size_t>(2 * total)]);
  call->pack.inputs[4].data = call->y.get();
  call->pack.outputs = {View(output, DType::kInt8, total)};
  call->Plan();
}

void MakeMessage(int rank, int64_t total, std::byte* x, std::byte* output, Call* call) {
  if (rank == 0) {
    Demand(CreateOperation(Struct<collops::SendParam>(rank), &call->operation));
    call->pack.inputs = {View(x, DType::kInt8, total)};
  } else {
    auto param = Struct<collops::RecvParam>(rank);
    param.srcRank = 0;
    Demand(CreateOperation(param, &call->operation));
    call->pack.inputs = {View(output, DType::kInt8, total)};
    call->pack.outputs = {View(output, DType::kInt8, total)};
  }
  call->Plan();
}

double Time(Call* call, int calls, std::byte* x, int64_t bytes, int rank, Board* board) {
  for (int i = 0; i < calls; ++i) {
    for (int64_t at = 0; at < bytes; at += 64) x[at] = static_cast<std::byte>(i + at / 64 + rank);
    board->Barrier();
    const double start = NowUs();
    call->Run();
    board->samples[rank][i] = NowUs() - start;
  }
  board->Barrier();
  const double median = board->Median(calls);
  board->Barrier();
  return median;
}

void Measure(const char* name, int64_t bytes, int calls, bool window, int rank, Board* board) {
  constexpr int kRounds = 15;
  std::byte* const x = Memory(rank, bytes, window);
  const auto output = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
  Call whats[kNumWhats];
  MakeGather(rank, bytes / 2, bytes, x, output.get(), &whats[kHalves]);
  MakeGather(rank, bytes, bytes, x, output.get(), &whats[kOneOwner]);
  MakeMessage(rank, bytes, x, output.get(), &whats[kMessage]);
  double times[kNumWhats][kRounds];
  for (int round = -1; round < kRounds; ++round) {
    for (int what = 0; what < kNumWhats; ++what) {
      times[what][std::max(round, 0)] = Time(&whats[what], calls, x, bytes, rank, board);
    }
  }
  double medians[kNumWhats];
  for (int what = 0; what < kNumWhats; ++what) {
    std::sort(times[what], times[what] + kRounds);
    medians[what] = times[what][kRounds / 2];
  }
  if (rank == 0) {
    std::printf(
        "%s %s: AllGatherV halves %.2f us, one owner %.2f us, message %.2f us: %.2f, %.2f\n", name,
        window ? "window" : "plain", medians[kHalves], medians[kOneOwner], medians[kMessage],
        medians[kMessage] / medians[kHalves], medians[kMessage] / medians[kOneOwner]);
    std::fflush(stdout);
  }
}

int RunRank(int rank, Board* board) {
  for (const bool window : {false, true}) {
    Measure("1 KiB", 1 << 10, 1000, window, rank, board);
    Measure("256 KiB", 256 << 10, 100, window, rank, board);
    Measure("4 MiB", 4 << 20, 20, window, rank, board);
  }
  return 0;
}

}  // namespace

int main() {
  return OnTwoRanks("message_loop", RunRank);
}
