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
                     const Blocks& blocks, PlainCall<AllGatherVCall>* prepared) {
  auto& [tensors, agreement, call] = *prepared;
  const char* name = IsEven(blocks) ? "all_gather" : "all_gatherv";
  RETURN_IF_ERROR(CheckBlocks(communicator, blocks, name));
  const int rank = communicator.rank();
  RETURN_IF_ERROR(ToPlainTensors(x, out, name, blocks.count(rank), blocks.total(), &tensors));
  RETURN_IF_ERROR(
      CheckApart(tensors, name, blocks.begin(rank), ", or pass x as this rank's own block of out"));
  call.dtype = tensors.x.view.desc.dtype;
  call.x = tensors.x.view.data;
  call.output = tensors.out.view.data;
  call.recv_counts = blocks.counts();
  call.rdispls = blocks.displs();
  CollectiveTerms terms;
  terms.dtype = Name(call.dtype);
  terms.x_shape = IsEven(blocks) ? ComparedShape(tensors.x) : blocks.shape();
  blocks.AgreeOn(name, "recvCounts", "rdispls", terms, &agreement);
  return communicator.Supports(Primitive::kGather, call.dtype, ReduceOp::kSum);
}

template <typename Caller>
void AllGatherV(Caller& caller, const py::object& x, const py::object& out, const Blocks& blocks) {
  PlainCall<AllGatherVCall> prepared(blocks.operation());
  const Status check = PrepareGather(CommunicatorOf(caller), x, out, blocks, &prepared);
  MakeOrRefuse(caller, blocks.operation(), check, &prepared, &Communicator::AllGatherV);
}

// Raises what AllGatherV() would refuse; local.
void CheckAllGatherV(const Communicator& communicator, const py::object& x, const py::object& out,
                     const Blocks& blocks) {
  PlainCall<AllGatherVCall> prepared(blocks.operation());
  ThrowIfError(PrepareGather(communicator, x, out, blocks, &prepared));
}

Status PrepareReduce(const Communicator& communicator, py::handle x, py::handle out,
                     const Blocks& blocks, ReduceOp op, PlainCall<ReduceScatterVCall>* prepared) {
  auto& [tensors, agreement, call] = *prepared;
  const char* name = ReducingMethod(blocks);
  RETURN_IF_ERROR(CheckBlocks(communicator, blocks, name));
  const int64_t own = blocks.count(communicator.rank());
  RETURN_IF_ERROR(ToPlainTensors(x, out, name, blocks.total(), own, &tensors));
  RETURN_IF_ERROR(CheckApart(tensors, name, -1, ""));
  call.dtype = tensors.x.view.desc.dtype;
  RETURN_IF_ERROR(CheckReducible(call.dtype, op, name));
  call.op = op;
  call.x = tensors.x.view.data;
  call.output = tensors.out.view.data;
  call.output_count = own;
  call.send_counts = blocks.counts();
  call.sdispls = blocks.displs();
  CollectiveTerms terms;
  terms.dtype = Name(call.dtype);
  terms.reduction = Name(op);
  terms.x_shape = ComparedShape(tensors.x);
  blocks.AgreeOn(name, "sendCounts", "sdispls", terms, &agreement);
  return communicator.Supports(Primitive::kReduce, call.dtype, op);
}

template <typename Caller>
void ReduceScatterV(Caller& caller, const py::object& x, const py::object& out,
                    const Blocks& blocks, int op) {
  PlainCall<ReduceScatterVCall> prepared(blocks.operation());
  const Status check =
      PrepareReduce(CommunicatorOf(caller), x, out, blocks, static_cast<ReduceOp>(op), &prepared);
  MakeOrRefuse(caller, blocks.operation(), check, &prepared, &Communicator::ReduceScatterV);
}

void Refuse(Communicator& communicator, const std::string& operation, int code,
            const std::string& message) {
  const char* name = LastingName(operation);
  RunNumbered(communicator, [&] {
    return communicator.Refuse(name, Status(static_cast<ErrorCode>(code), message));
  });
}

// None for a rank whose color is negative. Returns once every rank of the part is there.
std::shared_ptr<Communicator> Split(Communicator& communicator, int color, int key) {
  std::shared_ptr<Communicator> part;
  RunNumbered(communicator, [&] {
    RETURN_IF_ERROR(communicator.Split(color, key, &part));
    return part == nullptr ? Ok() : part->Connect();
  });
  return part;
}

void BindCalls(py::class_<Communicator, std::shared_ptr<Communicator>>& bound) {
  bound
      .def("all_gatherv", &AllGatherV<Communicator>, py::arg("x"), py::arg("out"),
           py::arg("blocks"))
      .def("check_all_gatherv", &CheckAllGatherV, py::arg("x"), py::arg("out"), py::arg("blocks"))
      .def("reduce_scatterv", &ReduceScatterV<Communicator>, py::arg("x"), py::arg("out"),
           py::arg("blocks"), py::arg("op"))
      .def("split", &Split, py::arg("color"), py::arg("key"))
      .def("barrier", [](Communicator& self) { RunNumbered(self, [&] { return self.Barrier(); }); })
      .def(
          "in_parts", [](Communicator& self, int parts) { BeginParts(self, parts); },
          py::arg("parts"))
      .def("refuse", &Refuse, py::arg("operation"), py::arg("code"), py::arg("message"))
      .def("abort", &Communicator::Abort, py::arg("reason"), py::call_guard<ReleasedGil>())
      .def(
          "close",
          [](Communicator& self, const std::string& reason) {
            RunWithoutGil([&] {
              self.Close(reason);
              return Ok();
            });
          },
          py::arg("reason"));
}

// The same calls of a communicator that starts them.
void BindStartedCalls(py::class_<Starter>& bound) {
  bound
      .def(
          "all_gatherv",
          [](Starter& self, const py::object& x, const py::object& out, const py::object& blocks) {
            self.Keep(x, out, blocks);
            AllGatherV(self, x, out, blocks.cast<const Blocks&>());
          },
          py::arg("x"), py::arg("out"), py::arg("blocks"))
      .def(
          "check_all_gatherv",
          [](Starter& self, const py::object& x, const py::object& out, const Blocks& blocks) {
            CheckAllGatherV(self.communicator(), x, out, blocks);
          },
          py::arg("x"), py::arg("out"), py::arg("blocks"))
      .def(
          "reduce_scatterv",
          [](Starter& self, const py::object& x, const py::object& out, const py::object& blocks,
             int op) {
            self.Keep(x, out, blocks);
            ReduceScatterV(self, x, out, blocks.cast<const Blocks&>(), op);
          },
          py::arg("x"), py::arg("out"), py::arg("blocks"), py::arg("op"))
      .def(
          "in_parts", [](Starter& self, int parts) { BeginParts(self.communicator(), parts); },
          py::arg("parts"))
      .def("barrier",
           [](Starter& self) {
             self.Add("Barrier", [](Communicator& communicator) { return communicator.Barrier(); });
           })
      .def(
          "refuse",
          [](Starter& self, const std::string& operation, int code, const std::string& message) {
            self.Refuse(LastingName(operation), Status(static_cast<ErrorCode>(code), message));
          },
          py::arg("operation"), py::arg("code"), py::arg("message"));
}

}  // namespace

void BindCommunicator(py::module_& module) {
  py::class_<Blocks>(module, "Blocks")
      .def(py::init<const std::string&, std::vector<int64_t>, int, int, std::string,
                    const std::vector<int64_t>&, int>(),
           py::arg("operation"), py::arg("counts"), py::arg("dim") = 0, py::arg("num_tensors") = 1,
           py::arg("type") = "", py::arg("shape") = std::vector<int64_t>(), py::arg("root") = 0)
      .def_property("row_elements", &Blocks::row_elements, &Blocks::set_row_elements);
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
  BindRowExchange(module, bound);
  py::class_<Starter> starter(module, "Starter");
  starter
      .def_property_readonly("rank", [](const Starter& self) { return self.communicator().rank(); })
      .def_property_readonly("size",
                             [](const Starter& self) { return self.communicator().size(); });
  BindStarted(module, starter);
  BindStartedCalls(starter);
  BindEvenCalls(bound, starter);
  BindMessages(bound, starter);
  BindExchangeCalls(module, bound, starter);
}

}  // namespace collops::bindings
