#include "plain/messages.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plain/plain_call.h"
#include "plain/started.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

// One message as Python states it: whether it is sent, peer (-1: any source), tag, the tensor, how
// messages call that, the name of an element type that travels as bytes, and bytes of one element
// of it (else 1).
using Item = std::tuple<bool, int, int, py::object, std::string, std::string, int64_t>;
// The same of a message that is refused.
using Refused = std::tuple<bool, int, int>;

CallName NameOf(const std::string& operation) {
  return {LastingName(operation), MethodOf(operation)};
}

Transfer MakeTransfer(const CallName& name, bool sends, int peer, int tag) {
  Transfer transfer;
  transfer.method = name.called;
  transfer.way = sends ? Transfer::kSend : Transfer::kRecv;
  transfer.peer = peer;
  transfer.tag = tag;
  return transfer;
}

Status FillIn(const Item& item, const char* name, const Device& device, CallStream* stream,
              Tensor* tensor, Transfer* transfer) {
  const auto& [sends, peer, tag, object, label, type, unit] = item;
  const TensorName tensor_name{name, label.c_str(), -1, nullptr};
  COLLOPS_RETURN_IF_ERROR(ToTensor(object, tensor_name, tensor, stream));
  COLLOPS_RETURN_IF_ERROR(CheckWhole(*tensor, name, label.c_str(), tensor->numel, device));
  if (!sends) COLLOPS_RETURN_IF_ERROR(CheckWritable(*tensor, name, label.c_str()));
  transfer->dtype = tensor->view.desc.dtype;
  transfer->elements = unit == 0 ? tensor->numel : tensor->numel / unit;
  type.copy(transfer->type, sizeof(transfer->type) - 1);
  transfer->data = tensor->view.data;
  transfer->bytes = tensor->numel * SizeOf(transfer->dtype);
  return Ok();
}

// What is received goes into memory that no other message of the call reads or writes.
Status CheckApart(const std::vector<Item>& items, const char* name,
                  const std::vector<Transfer>& list) {
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < list.size(); ++j) {
      COLLOPS_CHECK_ARG(list[i].way == Transfer::kSend || i == j ||
                            !Overlap(list[i].data, list[i].bytes, list[j].data, list[j].bytes),
                        ERROR_INVALID_TENSOR_ADDR, name, ": ", std::get<4>(items[i]), " overlaps ",
                        std::get<4>(items[j]), " in memory: give it memory of its own");
    }
  }
  return Ok();
}

Status Prepare(const Communicator& communicator, const std::vector<Item>& items, const char* name,
               std::vector<Tensor>* tensors, std::vector<Transfer>* list, void** stream) {
  CallStream call_stream;
  for (size_t i = 0; i < items.size(); ++i) {
    COLLOPS_RETURN_IF_ERROR(
        FillIn(items[i], name, communicator.device(), &call_stream, &(*tensors)[i], &(*list)[i]));
  }
  COLLOPS_RETURN_IF_ERROR(call_stream.Find(name, stream));
  COLLOPS_RETURN_IF_ERROR(CheckApart(items, name, *list));
  return communicator.Supports(Primitive::kMessages, DType::kUndefined, ReduceOp::kSum);
}

// What the messages of one call point at.
struct Prepared {
  std::vector<Item> items;
  std::vector<Tensor> tensors;
  std::vector<Transfer> list;
  void* stream = nullptr;  // of a device
};

// Tells the peers if something is wrong, and raises it.
void PrepareOrRefuse(Communicator& communicator, const CallName& call, Prepared* prepared) {
  std::vector<Transfer>& list = prepared->list;
  prepared->tensors.resize(prepared->items.size());
  for (const Item& item : prepared->items) {
    list.push_back(MakeTransfer(call, std::get<0>(item), std::get<1>(item), std::get<2>(item)));
  }
  const Status check = Prepare(communicator, prepared->items, call.called, &prepared->tensors,
                               &list, &prepared->stream);
  if (check.ok()) return;
  RunWithoutGil([&] {
    // An error of the refusal matters less than what is wrong with the messages.
    static_cast<void>(
        communicator.RefuseMessages(call, list.data(), static_cast<int>(list.size()), check));
    return check;
  });
}

// Whose message each receive got, in the order of the items; -1 for what was sent.
std::vector<int> Messages(Communicator& communicator, const std::string& operation,
                          std::vector<Item> items) {
  const CallName call = NameOf(operation);
  Prepared prepared{std::move(items), {}, {}, nullptr};
  PrepareOrRefuse(communicator, call, &prepared);
  std::vector<Transfer>& list = prepared.list;
  RunWithoutGil([&] {
    return communicator.Messages(call, list.data(), static_cast<int>(list.size()), prepared.stream);
  });
  std::vector<int> sources;
  for (const Transfer& transfer : list) sources.push_back(transfer.source);
  return sources;
}

void StartMessages(Starter& starter, const std::string& operation, std::vector<Item> items) {
  const CallName call = NameOf(operation);
  auto prepared = std::make_unique<Prepared>(Prepared{std::move(items), {}, {}, nullptr});
  PrepareOrRefuse(starter.communicator(), call, prepared.get());
  const std::vector<Transfer> list = prepared->list;
  void* const stream = prepared->stream;
  starter.StartMessages(call, list, stream, DestroyedWithGil(std::move(prepared)));
}

void RefuseMessages(Communicator& communicator, const std::string& operation,
                    const std::vector<Refused>& refused, int code, const std::string& message) {
  const CallName call = NameOf(operation);
  std::vector<Transfer> list;
  for (const auto& [sends, peer, tag] : refused) {
    list.push_back(MakeTransfer(call, sends, peer, tag));
  }
  RunWithoutGil([&] {
    return communicator.RefuseMessages(call, list.data(), static_cast<int>(list.size()),
                                       Status(static_cast<ErrorCode>(code), message));
  });
}

}  // namespace

void BindMessages(py::class_<Communicator, std::shared_ptr<Communicator>>& bound,
                  py::class_<Starter>& starter) {
  starter.def("messages", &StartMessages, py::arg("operation"), py::arg("items"))
      .def(
          "refuse_messages",
          [](Starter& self, const std::string& operation, const std::vector<Refused>& refused,
             int code, const std::string& message) {
            RefuseMessages(self.communicator(), operation, refused, code, message);
          },
          py::arg("operation"), py::arg("refused"), py::arg("code"), py::arg("message"));
  bound.def("messages", &Messages, py::arg("operation"), py::arg("items"))
      .def("refuse_messages", &RefuseMessages, py::arg("operation"), py::arg("refused"),
           py::arg("code"), py::arg("message"));
}

}  // namespace collops::bindings
