#include "even_calls.h"

#include <string>

#include "plain_call.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

constexpr const char* kAllReduce = "all_reduce";
constexpr const char* kBroadcast = "broadcast";
// By which the ranks know the calls, also those of the operations.
constexpr const char* kAllReduceOperation = "AllReduce";
constexpr const char* kBroadcastOperation = "Broadcast";

Status PrepareAllReduce(const Communicator& communicator, py::handle x, py::handle out, ReduceOp op,
                        PlainCall<AllReduceCall>* prepared) {
  auto& [tensors, agreement, call] = *prepared;
  RETURN_IF_ERROR(ToTensor(x, {kAllReduce, "x", -1, nullptr}, &tensors.x));
  const int64_t count = tensors.x.numel;
  RETURN_IF_ERROR(ToPlainTensors(x, out, kAllReduce, count, count, &tensors));
  RETURN_IF_ERROR(CheckApart(tensors, kAllReduce, 0, ", or pass x itself as out"));
  call.dtype = tensors.x.view.desc.dtype;
  RETURN_IF_ERROR(CheckReducible(call.dtype, op, kAllReduce));
  call.op = op;
  call.x = tensors.x.view.data;
  call.count = count;
  call.output = tensors.out.view.data;
  CollectiveTerms terms;
  terms.dtype = Name(call.dtype);
  terms.reduction = Name(op);
  terms.x_shape = ComparedShape(tensors.x);
  AddTerms(terms, &agreement);
  agreement.InPlainWords(kAllReduce, 1);
  return communicator.Supports(Primitive::kReduce, call.dtype, op);
}

template <typename Caller>
void AllReduce(Caller& caller, const py::object& x, const py::object& out, int op) {
  PlainCall<AllReduceCall> prepared(kAllReduceOperation);
  const Status check =
      PrepareAllReduce(CommunicatorOf(caller), x, out, static_cast<ReduceOp>(op), &prepared);
  MakeOrRefuse(caller, kAllReduceOperation, check, &prepared, &Communicator::AllReduce);
}

Status PrepareBroadcast(const Communicator& communicator, py::handle x, int root,
                        const std::string& type, PlainCall<BroadcastCall>* prepared) {
  auto& [tensors, agreement, call] = *prepared;
  Tensor* const tensor = &tensors.x;
  const TensorName name{kBroadcast, "x", -1, nullptr};
  CHECK_ARG(root >= 0 && root < communicator.size(), ERROR_INVALID_PARAM, kBroadcast,
            ": root must be in [0, ", communicator.size(), "), got ", root);
  RETURN_IF_ERROR(ToTensor(x, name, tensor));
  RETURN_IF_ERROR(CheckWhole(*tensor, name, tensor->numel));
  RETURN_IF_ERROR(CheckWritable(*tensor, name));
  call.dtype = tensor->view.desc.dtype;
  call.root = root;
  call.data = tensor->view.data;
  call.count = tensor->numel;
  CollectiveTerms terms;
  terms.dtype = type.empty() ? Name(call.dtype) : type.c_str();
  terms.root = root;
  terms.x_shape = ComparedShape(*tensor);
  AddTerms(terms, &agreement);
  agreement.InPlainWords(kBroadcast, 1);
  return communicator.Supports(Primitive::kGather, call.dtype, ReduceOp::kSum);
}

template <typename Caller>
void Broadcast(Caller& caller, const py::object& x, int root, const std::string& type) {
  PlainCall<BroadcastCall> prepared(kBroadcastOperation);
  const Status check = PrepareBroadcast(CommunicatorOf(caller), x, root, type, &prepared);
  MakeOrRefuse(caller, kBroadcastOperation, check, &prepared, &Communicator::Broadcast);
}

}  // namespace

void BindEvenCalls(py::class_<Communicator, std::shared_ptr<Communicator>>& bound,
                   py::class_<Starter>& starter) {
  bound.def("all_reduce", &AllReduce<Communicator>, py::arg("x"), py::arg("out"), py::arg("op"))
      .def("broadcast", &Broadcast<Communicator>, py::arg("x"), py::arg("root"), py::arg("type"));
  starter
      .def(
          "all_reduce",
          [](Starter& self, const py::object& x, const py::object& out, int op) {
            self.Keep(x, out);
            AllReduce(self, x, out, op);
          },
          py::arg("x"), py::arg("out"), py::arg("op"))
      .def(
          "broadcast",
          [](Starter& self, const py::object& x, int root, const std::string& type) {
            self.Keep(x);
            Broadcast(self, x, root, type);
          },
          py::arg("x"), py::arg("root"), py::arg("type"));
}

}  // namespace collops::bindings
