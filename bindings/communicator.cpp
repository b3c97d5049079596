#include "comm/communicator.h"

#include <pybind11/stl.h>

#include "even_calls.h"
#include "module.h"
#include "plain_call.h"
#include "status.h"

namespace collops::bindings {
namespace {

// The plain level's name of a call that is an AllGatherV or a ReduceScatterV.
const char* PlainName(CallKind kind) {
  if (kind == CallKind::kAllGather) return "all_gather";
  if (kind == CallKind::kReduceScatter) return "reduce_scatter";
  return Reduces(kind) ? "reduce_scatterv" : "all_gatherv";
}

Status CheckBlocks(const Communicator& communicator, const Blocks& blocks, const char* operation) {
  CHECK_ARG(blocks.size() == communicator.size(), ERROR_INVALID_PARAM, operation, ": ",
            blocks.size(), " sizes for ", communicator.size(), " ranks");
  return Ok();
}

Status PrepareGather(const Communicator& communicator, py::handle x, py::handle out,
                     const Blocks& blocks, CallKind kind, PlainTensors* tensors,
                     AllGatherVCall* call) {
  const char* name = PlainName(kind);
  RETURN_IF_ERROR(CheckBlocks(communicator, blocks, name));
  const int rank = communicator.rank();
  RETURN_IF_ERROR(ToPlainTensors(x, out, name, blocks.count(rank), blocks.total(), tensors));
  RETURN_IF_ERROR(CheckApart(*tensors, name, blocks.begin(rank),
                             ", or pass x as this rank's own block of out"));
  call->kind = kind;
  call->dtype = tensors->x.view.desc.dtype;
  call->x = tensors->x.view.data;
  call->x_shape = kind == CallKind::kAllGather ? ComparedShape(tensors->x) : blocks.shape();
  call->output = tensors->out.view.data;
  call->recv_counts = blocks.counts();
  call->rdispls = blocks.displs();
  call->label = blocks.label();
  return communicator.Supports(kind, call->dtype, ReduceOp::kSum);
}

void AllGatherV(Communicator& communicator, const py::object& x, const py::object& out,
                const Blocks& blocks, int kind) {
  PlainTensors tensors;
  AllGatherVCall call;
  const Status check =
      PrepareGather(communicator, x, out, blocks, static_cast<CallKind>(kind), &tensors, &call);
  RunOrRefuse(communicator, static_cast<CallKind>(kind), check,
              [&] { return communicator.AllGatherV(call); });
}

// Raises what AllGatherV() would refuse; local.
void CheckAllGatherV(const Communicator& communicator, const py::object& x, const py::object& out,
                     const Blocks& blocks) {
  PlainTensors tensors;
  AllGatherVCall call;
  ThrowIfError(PrepareGather(communicator, x, out, blocks, CallKind::kAllGatherV, &tensors, &call));
}

Status PrepareReduce(const Communicator& communicator, py::handle x, py::handle out,
                     const Blocks& blocks, ReduceOp op, CallKind kind, PlainTensors* tensors,
                     ReduceScatterVCall* call) {
  const char* name = PlainName(kind);
  RETURN_IF_ERROR(CheckBlocks(communicator, blocks, name));
  const int64_t own = blocks.count(communicator.rank());
  RETURN_IF_ERROR(ToPlainTensors(x, out, name, blocks.total(), own, tensors));
  RETURN_IF_ERROR(CheckApart(*tensors, name, -1, ""));
  call->kind = kind;
  call->dtype = tensors->x.view.desc.dtype;
  RETURN_IF_ERROR(CheckReducible(call->dtype, op, name));
  call->op = op;
  call->x = tensors->x.view.data;
  call->x_shape = ComparedShape(tensors->x);
  call->output = tensors->out.view.data;
  call->output_count = own;
  call->send_counts = blocks.counts();
  call->sdispls = blocks.displs();
  call->label = blocks.label();
  return communicator.Supports(kind, call->dtype, op);
}

void ReduceScatterV(Communicator& communicator, const py::object& x, const py::object& out,
                    const Blocks& blocks, int op, int kind) {
  PlainTensors tensors;
  ReduceScatterVCall call;
  const Status check = PrepareReduce(communicator, x, out, blocks, static_cast<ReduceOp>(op),
                                     static_cast<CallKind>(kind), &tensors, &call);
  RunOrRefuse(communicator, static_cast<CallKind>(kind), check,
              [&] { return communicator.ReduceScatterV(call); });
}

void Refuse(Communicator& communicator, int kind, int code, const std::string& message) {
  RunWithoutGil([&] {
    return communicator.Refuse(static_cast<CallKind>(kind),
                               Status(static_cast<ErrorCode>(code), message));
  });
}

// None for a rank whose color is negative. Returns once every rank of the part is there.
std::shared_ptr<Communicator> Split(Communicator& communicator, int color, int key) {
  std::shared_ptr<Communicator> part;
  RunWithoutGil([&] {
    RETURN_IF_ERROR(communicator.Split(color, key, &part));
    return part == nullptr ? Ok() : part->Connect();
  });
  return part;
}

void BindCalls(py::class_<Communicator, std::shared_ptr<Communicator>>& bound) {
  bound
      .def("all_gatherv", &AllGatherV, py::arg("x"), py::arg("out"), py::arg("blocks"),
           py::arg("kind"))
      .def("check_all_gatherv", &CheckAllGatherV, py::arg("x"), py::arg("out"), py::arg("blocks"))
      .def("reduce_scatterv", &ReduceScatterV, py::arg("x"), py::arg("out"), py::arg("blocks"),
           py::arg("op"), py::arg("kind"))
      .def("split", &Split, py::arg("color"), py::arg("key"))
      .def("barrier", [](Communicator& self) { RunWithoutGil([&] { return self.Barrier(); }); })
      .def("refuse", &Refuse, py::arg("kind"), py::arg("code"), py::arg("message"))
      .def("abort", &Communicator::Abort, py::arg("reason"),
           py::call_guard<py::gil_scoped_release>())
      .def("close", &Communicator::Close, py::arg("reason"),
           py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void BindCommunicator(py::module_& module) {
  module.attr("ALL_GATHER_V") = static_cast<int>(CallKind::kAllGatherV);
  module.attr("REDUCE_SCATTER_V") = static_cast<int>(CallKind::kReduceScatterV);
  module.attr("SIZE_EXCHANGE") = static_cast<int>(CallKind::kSizeExchange);
  module.attr("ALL_GATHER") = static_cast<int>(CallKind::kAllGather);
  module.attr("REDUCE_SCATTER") = static_cast<int>(CallKind::kReduceScatter);
  module.attr("ALL_REDUCE") = static_cast<int>(CallKind::kAllReduce);
  module.attr("BROADCAST") = static_cast<int>(CallKind::kBroadcast);
  module.attr("SPLIT") = static_cast<int>(CallKind::kSplit);
  module.attr("LINEAR_PARALLEL") = static_cast<int>(CallKind::kLinearParallel);
  py::class_<Blocks>(module, "Blocks")
      .def(py::init<std::vector<int64_t>, int, int, const std::string&,
                    const std::vector<int64_t>&>(),
           py::arg("counts"), py::arg("dim") = 0, py::arg("num_tensors") = 1, py::arg("type") = "",
           py::arg("shape") = std::vector<int64_t>());
  py::class_<Communicator, std::shared_ptr<Communicator>> bound(module, "Communicator");
  bound.def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("size", &Communicator::size)
      .def_property_readonly("failed", &Communicator::failed)
      .def_property_readonly("timeout_s", &Communicator::timeout_s)
      .def_property_readonly("backend",
                             [](const Communicator& self) { return self.spec().backend; })
      .def_property_readonly("comm_domain",
                             [](const Communicator& self) { return self.spec().comm_domain; })
      .def_property_readonly(
          "handle", [](const Communicator& self) { return reinterpret_cast<uintptr_t>(&self); });
  BindCalls(bound);
  BindEvenCalls(bound);
}

}  // namespace collops::bindings
