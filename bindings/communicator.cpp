#include "comm/communicator.h"

#include <pybind11/stl.h>

#include <string_view>

#include "even_calls.h"
#include "exchange_calls.h"
#include "messages.h"
#include "module.h"
#include "plain_call.h"
#include "row_exchange.h"
#include "status.h"

namespace collops::bindings {
namespace {

bool IsEven(const Blocks& blocks) {
  const std::string_view operation = blocks.operation();
  return operation == "AllGather" || operation == "ReduceScatter";
}

// The method of the plain level that reduces into these blocks, for messages.
const char* ReducingMethod(const Blocks& blocks) {
  if (IsEven(blocks)) return "reduce_scatter";
  return std::string_view(blocks.operation()) == "Reduce" ? "reduce" : "reduce_scatterv";
}

Status CheckBlocks(const Communicator& communicator, const Blocks& blocks, const char* operation) {
  CHECK_ARG(blocks.size() == communicator.size(), ERROR_INVALID_PARAM, operation, ": ",
            blocks.size(), " sizes for ", communicator.size(), " ranks");
  return Ok();
}

Status PrepareGather(const Communicator& communicator, py::handle x, py::handle out,
                     const Blocks& blocks, PlainTensors* tensors, Agreement* agreement,
                     AllGatherVCall* call) {
  const char* name = IsEven(blocks) ? "all_gather" : "all_gatherv";
  RETURN_IF_ERROR(CheckBlocks(communicator, blocks, name));
  const int rank = communicator.rank();
  RETURN_IF_ERROR(ToPlainTensors(x, out, name, blocks.count(rank), blocks.total(), tensors));
  RETURN_IF_ERROR(CheckApart(*tensors, name, blocks.begin(rank),
                             ", or pass x as this rank's own block of out"));
  call->dtype = tensors->x.view.desc.dtype;
  call->x = tensors->x.view.data;
  call->output = tensors->out.view.data;
  call->recv_counts = blocks.counts();
  call->rdispls = blocks.displs();
  CollectiveTerms terms;
  terms.dtype = Name(call->dtype);
  terms.x_shape = IsEven(blocks) ? ComparedShape(tensors->x) : blocks.shape();
  blocks.AgreeOn("recvCounts", "rdispls", terms, agreement);
  call->agreement = agreement;
  return communicator.Supports(Primitive::kGather, call->dtype, ReduceOp::kSum);
}

void AllGatherV(Communicator& communicator, const py::object& x, const py::object& out,
                const Blocks& blocks) {
  PlainTensors tensors;
  Agreement agreement(blocks.operation());
  AllGatherVCall call;
  const Status check = PrepareGather(communicator, x, out, blocks, &tensors, &agreement, &call);
  RunOrRefuse(communicator, blocks.operation(), check,
              [&] { return communicator.AllGatherV(call); });
}

// Raises what AllGatherV() would refuse; local.
void CheckAllGatherV(const Communicator& communicator, const py::object& x, const py::object& out,
                     const Blocks& blocks) {
  PlainTensors tensors;
  Agreement agreement(blocks.operation());
  AllGatherVCall call;
  ThrowIfError(PrepareGather(communicator, x, out, blocks, &tensors, &agreement, &call));
}

Status PrepareReduce(const Communicator& communicator, py::handle x, py::handle out,
                     const Blocks& blocks, ReduceOp op, PlainTensors* tensors, Agreement* agreement,
                     ReduceScatterVCall* call) {
  const char* name = ReducingMethod(blocks);
  RETURN_IF_ERROR(CheckBlocks(communicator, blocks, name));
  const int64_t own = blocks.count(communicator.rank());
  RETURN_IF_ERROR(ToPlainTensors(x, out, name, blocks.total(), own, tensors));
  RETURN_IF_ERROR(CheckApart(*tensors, name, -1, ""));
  call->dtype = tensors->x.view.desc.dtype;
  RETURN_IF_ERROR(CheckReducible(call->dtype, op, name));
  call->op = op;
  call->x = tensors->x.view.data;
  call->output = tensors->out.view.data;
  call->output_count = own;
  call->send_counts = blocks.counts();
  call->sdispls = blocks.displs();
  CollectiveTerms terms;
  terms.dtype = Name(call->dtype);
  terms.reduction = Name(op);
  terms.x_shape = ComparedShape(tensors->x);
  blocks.AgreeOn("sendCounts", "sdispls", terms, agreement);
  call->agreement = agreement;
  return communicator.Supports(Primitive::kReduce, call->dtype, op);
}

void ReduceScatterV(Communicator& communicator, const py::object& x, const py::object& out,
                    const Blocks& blocks, int op) {
  PlainTensors tensors;
  Agreement agreement(blocks.operation());
  ReduceScatterVCall call;
  const Status check = PrepareReduce(communicator, x, out, blocks, static_cast<ReduceOp>(op),
                                     &tensors, &agreement, &call);
  RunOrRefuse(communicator, blocks.operation(), check,
              [&] { return communicator.ReduceScatterV(call); });
}

void Refuse(Communicator& communicator, const std::string& operation, int code,
            const std::string& message) {
  const char* name = LastingName(operation);
  RunWithoutGil(
      [&] { return communicator.Refuse(name, Status(static_cast<ErrorCode>(code), message)); });
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
  bound.def("all_gatherv", &AllGatherV, py::arg("x"), py::arg("out"), py::arg("blocks"))
      .def("check_all_gatherv", &CheckAllGatherV, py::arg("x"), py::arg("out"), py::arg("blocks"))
      .def("reduce_scatterv", &ReduceScatterV, py::arg("x"), py::arg("out"), py::arg("blocks"),
           py::arg("op"))
      .def("split", &Split, py::arg("color"), py::arg("key"))
      .def("barrier", [](Communicator& self) { RunWithoutGil([&] { return self.Barrier(); }); })
      .def("refuse", &Refuse, py::arg("operation"), py::arg("code"), py::arg("message"))
      .def("abort", &Communicator::Abort, py::arg("reason"),
           py::call_guard<py::gil_scoped_release>())
      .def("close", &Communicator::Close, py::arg("reason"),
           py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void BindCommunicator(py::module_& module) {
  py::class_<Blocks>(module, "Blocks")
      .def(py::init<const std::string&, std::vector<int64_t>, int, int, std::string,
                    const std::vector<int64_t>&, int>(),
           py::arg("operation"), py::arg("counts"), py::arg("dim") = 0, py::arg("num_tensors") = 1,
           py::arg("type") = "", py::arg("shape") = std::vector<int64_t>(), py::arg("root") = 0);
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
  BindRowExchange(module, bound);
  BindMessages(bound);
  BindExchangeCalls(module, bound);
}

}  // namespace collops::bindings
