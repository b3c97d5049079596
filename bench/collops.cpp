// Measures collops's operators through the public C++ interface alone, planned: collops_bench
// OPERATOR DTYPE BYTES SHARES ITERATIONS WAY, with a rank for each of SHARES. It starts the ranks
// itself.
//
// The ways: "plain" (x in plain memory), "window" (x in memory that peers read in place), "started"
// (Start and Wait, x in plain memory) and "beside" (as plain, while a message that nobody has sent
// is outstanding). A call is Execute of an operation with all its checks; of send_recv one
// Messages() of a send to the next rank and a receive from the one before.
#include <collops/collops.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "measure.h"

namespace bench {
namespace {

constexpr const char* kBackend = "shm";

void Demand(const collops::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "collops: %s\n", status.message().c_str());
  std::exit(kFailed);
}

std::shared_ptr<collops::Communicator> CommunicatorOf(const std::string& domain, int rank,
                                                      int ranks) {
  collops::CommunicatorSpec spec;
  spec.backend = kBackend;
  spec.comm_domain = domain;
  spec.rank = rank;
  spec.rank_size = ranks;
  std::shared_ptr<collops::Communicator> communicator;
  Demand(collops::Registry::Instance().Get(spec, &communicator));
  Demand(communicator->Connect());  // also of ranks that take no part in a message
  return communicator;
}

std::shared_ptr<void> WindowMemory(collops::Communicator* communicator, int64_t bytes) {
  std::shared_ptr<collops::Window> window;
  Demand(communicator->AllocateWindow(bytes, &window));
  return {window, window->data()};
}

collops::DType DTypeOf(DType dtype) {
  return dtype == DType::kFloat32 ? collops::DType::kFloat32 : collops::DType::kBFloat16;
}

collops::TensorView View(void* data, collops::DType dtype, const collops::Shape& shape) {
  collops::TensorView view;
  view.desc.dtype = dtype;
  view.desc.shape = shape;
  view.data = data;
  return view;
}

// An operation with all that its tensors point to; owned by the call that runs it.
struct Planned {
  std::string domain;
  std::shared_ptr<collops::Communicator> communicator;
  Point point;
  Buffers buffers;
  std::vector<uint16_t> y;  // only its length is read: the output's rows
  std::vector<char> workspace;
  std::unique_ptr<collops::Operation> operation;
  collops::VariantPack pack;
  collops::Transfer transfers[2];

  collops::TensorView X(int rank) const {
    return View(buffers.x.get(), DTypeOf(point.dtype), {point.XCount(rank), 1});
  }
  collops::TensorView Output(int rank) const {
    return View(buffers.output.get(), DTypeOf(point.dtype), {point.OutputCount(rank), 1});
  }
  collops::TensorView Numbers(std::vector<int64_t>* numbers) const {
    return View(numbers->data(), collops::DType::kInt64, {static_cast<int64_t>(numbers->size())});
  }
  collops::TensorView OwnCount(int rank) {
    return View(&point.counts[static_cast<size_t>(rank)], collops::DType::kInt64, {1});
  }
};

template <typename Param>
Param Struct(const Planned& planned) {
  Param param;
  param.rank = planned.communicator->rank();
  param.rankSize = planned.communicator->size();
  param.backend = kBackend;
  param.commDomain = planned.domain;
  return param;
}

template <typename Param>
void Plan(const Param& param, Planned* planned) {
  Demand(CreateOperation(param, &planned->operation));
  uint64_t bytes = 0;
  Demand(planned->operation->GetWorkspaceSize(planned->pack, &bytes));
  planned->workspace.resize(bytes);
}

void PlanAllToAllV(int rank, Planned* planned) {
  const Point& point = planned->point;
  const int64_t own = point.counts[static_cast<size_t>(rank)];
  auto param = Struct<collops::AllToAllVParam>(*planned);
  param.sendCounts = point.counts;
  param.sdispls = point.displs;
  for (int r = 0; r < point.ranks(); ++r) {
    param.recvCounts.push_back(own);
    param.rdispls.push_back(r * own);
  }
  const collops::Shape row{1, point.OutputCount(rank)};
  planned->pack.outputs = {View(planned->buffers.output.get(), DTypeOf(point.dtype), row)};
  Plan(param, planned);
}

void PlanMessages(int rank, Planned* planned) {
  const Point& point = planned->point;
  collops::Transfer transfer;
  transfer.dtype = DTypeOf(point.dtype);
  transfer.elements = point.elements;
  transfer.bytes = point.XBytes(rank);
  transfer.digest = static_cast<uint64_t>(point.elements);  // the same on both sides
  transfer.way = collops::Transfer::kSend;
  transfer.peer = (rank + 1) % point.ranks();
  transfer.data = planned->buffers.x.get();
  planned->transfers[0] = transfer;
  transfer.way = collops::Transfer::kRecv;
  transfer.peer = (rank + point.ranks() - 1) % point.ranks();
  transfer.data = planned->buffers.output.get();
  planned->transfers[1] = transfer;
}

// Ranks that neither send nor receive have no operation.
void PlanSend(int rank, Planned* planned) {
  if (rank == 0) {
    planned->pack.outputs.clear();
    auto param = Struct<collops::SendParam>(*planned);
    param.destRank = 1;
    return Plan(param, planned);
  }
  if (rank != 1) return;
  planned->pack.inputs = planned->pack.outputs;
  auto param = Struct<collops::RecvParam>(*planned);
  param.srcRank = 0;
  Plan(param, planned);
}

void PlanCall(int rank, Planned* planned) {
  Point& point = planned->point;
  auto& inputs = planned->pack.inputs;
  auto& outputs = planned->pack.outputs;
  auto y = View(planned->y.data(), collops::DType::kFloat16, {point.OutputCount(rank)});
  inputs = {planned->X(rank)};
  outputs = {planned->Output(rank)};
  switch (point.op) {
    case Operator::kAllGatherV:
      inputs.insert(inputs.end(), {planned->OwnCount(rank), planned->Numbers(&point.counts),
                                   planned->Numbers(&point.displs), y});
      return Plan(Struct<collops::AllGatherVParam>(*planned), planned);
    case Operator::kReduceScatterV:
      inputs.insert(inputs.end(), {planned->Numbers(&point.counts), planned->Numbers(&point.displs),
                                   planned->OwnCount(rank), y});
      return Plan(Struct<collops::ReduceScatterVParam>(*planned), planned);
    case Operator::kAllReduce:
      return Plan(Struct<collops::AllReduceParam>(*planned), planned);
    case Operator::kBroadcast:
      outputs.clear();
      return Plan(Struct<collops::BroadcastParam>(*planned), planned);
    case Operator::kAllToAllV:
      return PlanAllToAllV(rank, planned);
    case Operator::kSendRecv:
      return PlanMessages(rank, planned);
    case Operator::kSend:
      return PlanSend(rank, planned);
  }
}

enum Kind { kPlain, kWindow, kStarted, kBeside };
constexpr const char* kWays[] = {"plain", "window", "started", "beside"};

// A receive that is never sent to, so that a started call is outstanding as long as this lives.
void ExpectNothing(Planned* planned) {
  static char box[8];
  collops::Transfer receive;
  receive.way = collops::Transfer::kRecv;
  receive.peer = (planned->communicator->rank() + 1) % planned->communicator->size();
  receive.dtype = collops::DType::kInt8;
  receive.elements = receive.bytes = sizeof(box);
  receive.data = box;
  static collops::Communicator::Handle outstanding;
  Demand(planned->communicator->StartMessages("Recv", &receive, 1, &outstanding));
}

collops::Status Run(Planned* planned) {
  if (planned->point.op == Operator::kSendRecv) {
    return planned->communicator->Messages("send_recv", planned->transfers, 2);
  }
  if (planned->operation == nullptr) return {};
  return planned->operation->Execute(planned->pack, planned->workspace.data(),
                                     planned->workspace.size(), nullptr);
}

Call Make(const Point& point, int rank, Kind kind, Buffers* buffers) {
  const auto planned = std::make_shared<Planned>();
  // What was once started stays: each way has a communicator of its own.
  planned->domain = kind == kStarted || kind == kBeside ? kWays[kind] : "bench";
  planned->communicator = CommunicatorOf(planned->domain, rank, point.ranks());
  if (kind == kWindow) {
    buffers->x = WindowMemory(planned->communicator.get(), point.XBytes(rank));
    if (point.in_place()) buffers->output = buffers->x;
  }
  planned->point = point;
  planned->buffers = *buffers;
  planned->y.resize(static_cast<size_t>(point.OutputCount(rank)));
  PlanCall(rank, planned.get());
  if (kind == kBeside) ExpectNothing(planned.get());
  if (kind != kStarted) return [planned] { Demand(Run(planned.get())); };
  return [planned] {
    collops::Communicator::Handle handle;
    Demand(
        planned->communicator->Start("bench", [planned] { return Run(planned.get()); }, &handle));
    Demand(planned->communicator->Wait(handle));
  };
}

// A message is matched with the one that is expected, so these have two ways.
std::vector<Way> Ways(Operator op) {
  const bool messages = op == Operator::kSendRecv || op == Operator::kSend;
  std::vector<Way> ways;
  for (const Kind kind : {kPlain, kWindow, kStarted, kBeside}) {
    if (messages && kind > kWindow) break;
    ways.push_back({kWays[kind], [kind](const Point& point, int rank, Buffers* buffers) {
                      return Make(point, rank, kind, buffers);
                    }});
  }
  return ways;
}

// The ranks' job, which no other run on this host has.
void NameJob() {
  std::random_device random;
  const std::string job = "bench-" + std::to_string(random()) + "-" + std::to_string(random());
  setenv("COLLOPS_JOB_ID", job.c_str(), 1);
}

int RunRank(const Arguments& arguments, BoardMemory* memory, int rank) {
  Board board(memory, rank, arguments.points.front().ranks());
  return Measure(arguments, Ways(arguments.points.front().op), &board);
}

// The worst exit status. A rank that failed ends the others, which wait for it at the board; after
// wrong results or wrong arguments all ranks end by themselves.
int AwaitRanks(const std::vector<pid_t>& ranks) {
  int worst = 0;
  for (size_t left = ranks.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    const int result = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
    if (WIFSIGNALED(status) && worst == 0) {
      std::fprintf(stderr, "a rank was ended by signal %d\n", WTERMSIG(status));
    }
    worst = std::max(worst, result);
    for (const pid_t rank : ranks) {
      if (rank != ended && result == kFailed) kill(rank, SIGKILL);
    }
  }
  return worst;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("collops %s\n", BENCH_COLLOPS_VERSION);
    return 0;
  }
  bench::Arguments arguments;
  if (!bench::Parse(argc, argv, &arguments)) return bench::kArguments;
  const int descriptor = bench::Board::Create();
  bench::BoardMemory* const memory = descriptor < 0 ? nullptr : bench::Board::Map(descriptor);
  if (memory == nullptr) {
    std::perror("the ranks' shared memory");
    return bench::kFailed;
  }
  bench::NameJob();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < arguments.points.front().ranks(); ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::exit(bench::RunRank(arguments, memory, rank));
    }
    if (child < 0) std::perror("fork");
    ranks.push_back(child);
  }
  return bench::AwaitRanks(ranks);
}
