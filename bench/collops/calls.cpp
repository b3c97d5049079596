#include "calls.h"

#include <collops/collops.h>

#include <cstdio>
#include <cstdlib>

namespace bench::collops_calls {
namespace {

constexpr const char* kBackend = "shm";
constexpr const char* kDomain = "bench";

void Demand(const collops::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "collops: %s\n", status.message().c_str());
  std::exit(kFailed);
}

std::shared_ptr<collops::Communicator> CommunicatorOf(int rank, int ranks) {
  collops::CommunicatorSpec spec;
  spec.backend = kBackend;
  spec.comm_domain = kDomain;
  spec.rank = rank;
  spec.rank_size = ranks;
  std::shared_ptr<collops::Communicator> communicator;
  Demand(collops::Registry::Instance().Get(spec, &communicator));
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
  param.commDomain = kDomain;
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
  }
}

Call Make(const Point& point, int rank, bool in_window, Buffers* buffers) {
  const auto planned = std::make_shared<Planned>();
  planned->communicator = CommunicatorOf(rank, point.ranks());
  if (in_window) {
    buffers->x = WindowMemory(planned->communicator.get(), point.XBytes(rank));
    if (point.op == Operator::kBroadcast) buffers->output = buffers->x;
  }
  planned->point = point;
  planned->buffers = *buffers;
  planned->y.resize(static_cast<size_t>(point.OutputCount(rank)));
  PlanCall(rank, planned.get());
  if (point.op == Operator::kSendRecv) {
    return
        [planned] { Demand(planned->communicator->Messages("send_recv", planned->transfers, 2)); };
  }
  return [planned] {
    Demand(planned->operation->Execute(planned->pack, planned->workspace.data(),
                                       planned->workspace.size(), nullptr));
  };
}

}  // namespace

std::vector<Way> Ways() {
  const auto way = [](const char* name, bool in_window) {
    return Way{name, [in_window](const Point& point, int rank, Buffers* buffers) {
                 return Make(point, rank, in_window, buffers);
               }};
  };
  return {way("plain", false), way("window", true)};
}

}  // namespace bench::collops_calls
