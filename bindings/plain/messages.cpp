#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "module.h"
#include "plain/operand.h"
#include "plain/plain_level.h"
#include "plain/started.h"
#include "status.h"

namespace collops::bindings {
namespace {

constexpr int kAnyRank = -1;

// One message as its caller states it, and its tensor.
struct Message {
  bool sends;
  std::string label;  // of the tensor, in messages
  py::object value;
  Operand operand;
};

// The messages of one call, and what the core gets.
struct MessageList {
  CallName name;
  std::vector<Message> messages;
  std::vector<Transfer> transfers;
  void* stream = nullptr;  // of a device
};

int ReadRank(const PlainLevel& level, const char* name, const std::string& label,
             const py::object& value) {
  const int64_t number = ReadWhole(name, label, value);
  const int size = level.communicator().size();
  if (number < 0 || number >= size) {
    Throw(ERROR_INVALID_PARAM, name, ": ", label, " must be in [0, ", size, "), got ", number);
  }
  return static_cast<int>(number);
}

void RefuseOwnRank(const PlainLevel& level, const char* name, const char* label,
                   const py::object& value) {
  if (ReadRank(level, name, label, value) != level.communicator().rank() || level.starts()) return;
  Throw(ERROR_INVALID_PARAM, name, ": ", label, " is this rank itself, ",
        std::string(py::str(value)),
        ": pass another rank, or begin both sides with exchange() or start()");
}

// Adds a message; `where` is what its arguments are of: "messages[1]." of an exchange.
void AddMessage(const PlainLevel& level, const std::string& where, bool sends,
                const py::object& tensor, const py::object& peer, const py::object& tag,
                MessageList* list) {
  const char* const name = list->name.called;
  Transfer transfer;
  transfer.method = name;
  transfer.way = sends ? Transfer::kSend : Transfer::kRecv;
  transfer.peer = kAnyRank;
  if (!peer.is_none() || sends) {
    transfer.peer = ReadRank(level, name, Concat(where, sends ? "to" : "from_"), peer);
  }
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t number = ReadWhole(name, Concat(where, "tag"), tag);
  if (number < 0 || number > kMost) {
    Throw(ERROR_INVALID_PARAM, name, ": ", where, "tag must be from 0 to ", kMost, ", got ",
          number);
  }
  transfer.tag = static_cast<int>(number);
  list->transfers.push_back(transfer);
  list->messages.push_back({sends, Concat(where, sends ? "x" : "out"), tensor, {}});
}

void FillIn(const Device& device, const char* name, CallStream* stream, Message* message,
            Transfer* transfer) {
  const TensorName words{name, message->label.c_str()};
  Operand& operand = message->operand;
  operand = message->sends ? ReadInput(words, message->value, stream)
                           : ReadOutput(words, message->value, stream);
  ThrowIfError(operand.problem);
  RowShape elements;
  NameElements(words, operand, &elements);
  if (!elements.type.empty()) MoveAsBytes(&operand);
  const Tensor& tensor = operand.tensor;
  ThrowIfError(CheckWhole(tensor, name, message->label.c_str(), tensor.numel, device));
  if (!message->sends) ThrowIfError(CheckWritable(tensor, name, message->label.c_str()));
  transfer->dtype = tensor.view.desc.dtype;
  transfer->elements = elements.unit == 0 ? tensor.numel : tensor.numel / elements.unit;
  elements.type.copy(transfer->type, sizeof(transfer->type) - 1);
  transfer->data = tensor.view.data;
  transfer->bytes = tensor.numel * SizeOf(transfer->dtype);
}

// What is received goes into memory that no other message of the call reads or writes.
Status CheckMessagesApart(const MessageList& list) {
  for (size_t i = 0; i < list.transfers.size(); ++i) {
    for (size_t j = 0; j < list.transfers.size(); ++j) {
      const Transfer& into = list.transfers[i];
      const Transfer& other = list.transfers[j];
      COLLOPS_CHECK_ARG(into.way == Transfer::kSend || i == j ||
                            !Overlap(into.data, into.bytes, other.data, other.bytes),
                        ERROR_INVALID_TENSOR_ADDR, list.name.called, ": ", list.messages[i].label,
                        " overlaps ", list.messages[j].label,
                        " in memory: give it memory of its own");
    }
  }
  return Ok();
}

void PrepareMessages(const Communicator& communicator, MessageList* list) {
  CallStream stream;
  for (size_t i = 0; i < list->messages.size(); ++i) {
    FillIn(communicator.device(), list->name.called, &stream, &list->messages[i],
           &list->transfers[i]);
  }
  ThrowIfError(stream.Find(list->name.called, &list->stream));
  ThrowIfError(CheckMessagesApart(*list));
  ThrowIfError(communicator.Supports(Primitive::kMessages, DType::kUndefined, ReduceOp::kSum));
}

// Sends an error to the peers of the messages.
void RefuseMessages(Communicator& communicator, const MessageList& list, const Status& reason) {
  const ReleasedGil released;
  // An error of the refusal matters less than what is wrong with the messages.
  static_cast<void>(communicator.RefuseMessages(list.name, list.transfers.data(),
                                                static_cast<int>(list.transfers.size()), reason));
}

py::object RunMessages(const PlainLevel& level, std::unique_ptr<MessageList> list,
                       MakeResultOf make) {
  Communicator& communicator = level.communicator();
  try {
    PrepareMessages(communicator, list.get());
  } catch (py::error_already_set& error) {
    if (error.matches(PyExc_Exception)) RefuseMessages(communicator, *list, StatusOf(error));
    throw;
  }
  std::vector<Transfer>& transfers = list->transfers;
  const auto count = static_cast<int>(transfers.size());
  const CallName name = list->name;
  void* const stream = list->stream;
  if (!level.starts()) {
    RunWithoutGil([&] { return communicator.Messages(name, transfers.data(), count, stream); });
    std::vector<int> sources;
    for (const Transfer& transfer : transfers) sources.push_back(transfer.source);
    return make(sources);
  }
  const std::vector<Transfer> started = transfers;
  Communicator::Handle handle;
  const std::shared_ptr<const void> keep = DestroyedWithGil(std::move(list));
  RunWithoutGil([&] {
    return communicator.StartMessages(name, started.data(), count, &handle, keep, stream);
  });
  return StartedCallOf(communicator.shared_from_this(), std::move(handle), std::move(make));
}

std::unique_ptr<MessageList> NewList(const char* operation, const char* method) {
  return std::make_unique<MessageList>(MessageList{{operation, method}, {}, {}, nullptr});
}

}  // namespace

py::object PlainLevel::Send(const py::object& x, const py::object& to, const py::object& tag) {
  RefuseOwnRank(*this, "send", "to", to);
  auto list = NewList("Send", "send");
  AddMessage(*this, "", true, x, to, tag, list.get());
  return RunMessages(*this, std::move(list),
                     [](const std::vector<int>& /*sources*/) -> py::object { return py::none(); });
}

py::object PlainLevel::Recv(const py::object& out, const py::object& from, const py::object& tag,
                            bool return_source) {
  if (!from.is_none()) RefuseOwnRank(*this, "recv", "from_", from);
  auto list = NewList("Recv", "recv");
  AddMessage(*this, "", false, out, from, tag, list.get());
  return RunMessages(*this, std::move(list),
                     [out, return_source](const std::vector<int>& sources) -> py::object {
                       return return_source ? py::object(py::make_tuple(out, sources[0])) : out;
                     });
}

// `messages`: of collops.SendTo and collops.RecvFrom.
py::object PlainLevel::Exchange(const py::object& messages) {
  constexpr const char* kName = "exchange";
  if (!IsList(messages)) {
    Throw(ERROR_INVALID_PARAM, kName, ": messages must be a list, got ", TypeNameOf(messages));
  }
  const auto module = py::module_::import("collops.collectives.messages");
  const py::object send_to = module.attr("SendTo");
  const py::object recv_from = module.attr("RecvFrom");
  const py::tuple items(messages);  // later changes of the list have no effect
  auto list = NewList("Exchange", kName);
  std::unique_ptr<py::error_already_set> problem;
  for (size_t i = 0; i < items.size(); ++i) {
    const py::object item = items[i];
    const std::string where = Concat("messages[", i, "]");
    const bool sends = py::isinstance(item, send_to);
    try {
      if (!sends && !py::isinstance(item, recv_from)) {
        Throw(ERROR_INVALID_PARAM, kName, ": ", where,
              " must be a collops.SendTo or a collops.RecvFrom, got ", TypeNameOf(item));
      }
      AddMessage(*this, where + ".", sends, item.attr(sends ? "x" : "out"),
                 item.attr(sends ? "to" : "from_"), item.attr("tag"), list.get());
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;
      if (problem == nullptr) problem = std::make_unique<py::error_already_set>(error);
    }
  }
  if (problem != nullptr) {
    RefuseMessages(communicator(), *list, StatusOf(*problem));
    throw py::error_already_set(*problem);
  }
  return RunMessages(*this, std::move(list),
                     [items](const std::vector<int>& sources) -> py::object {
                       py::list outs;
                       for (size_t i = 0; i < items.size(); ++i) {
                         const py::object item = items[i];
                         if (!py::hasattr(item, "out")) continue;
                         item.attr("source") = sources[i];
                         outs.append(item.attr("out"));
                       }
                       return std::move(outs);
                     });
}

}  // namespace collops::bindings
