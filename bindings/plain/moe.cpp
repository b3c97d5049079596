#include "collops/operators/moe.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "module.h"
#include "plain/operand.h"
#include "plain/plain_level.h"
#include "plain/started.h"
#include "status.h"

namespace collops::bindings {
namespace {

// A tensor of a call and what keeps its memory.
using Operands = std::vector<Operand>;

const PlainTensor& Keep(Operand operand, Operands* kept) {
  ThrowIfError(operand.problem);
  kept->push_back(std::move(operand));
  return kept->back().tensor;
}

// The tensor of rows of a call, of any element type.
void ReadRows(const TensorName& name, const py::object& value, Operands* kept, RowShape* shape,
              PlainTensor* rows) {
  CallStream stream;
  Operand operand = ReadInput(name, value, &stream);
  ThrowIfError(operand.problem);
  NameElements(name, operand, shape);
  shape->sizes = operand.sizes;
  if (!shape->type.empty()) MoveAsBytes(&operand);
  *rows = Keep(std::move(operand), kept);
}

std::optional<PlainTensor> ReadOptional(const TensorName& name, const py::object& value,
                                        Operands* kept) {
  if (value.is_none()) return std::nullopt;
  CallStream stream;
  return Keep(ReadInput(name, value, &stream), kept);
}

// Numbers of a handle [.., ..].
std::vector<int64_t> ReadNumbers(const char* method, const char* label, const py::object& value,
                                 int64_t sizes[2]) {
  CallStream stream;
  const Operand operand = ReadInput({method, label}, value, &stream);
  ThrowIfError(operand.problem);
  const TensorDesc& desc = operand.tensor.view.desc;
  if (desc.dtype != DType::kInt64 || desc.shape.num_dims != 2) {
    Throw(ERROR_INVALID_TENSOR_INI_MATCH, method, ": ", label, " must be int64 of two dims, got ",
          NameOfType(desc), " ", ToString(desc.shape));
  }
  ThrowIfError(CheckWhole(operand.tensor, method, label, operand.tensor.numel, Device()));
  sizes[0] = desc.shape[0];
  sizes[1] = desc.shape[1];
  std::vector<int64_t> numbers(static_cast<size_t>(operand.tensor.numel));
  if (!numbers.empty()) {  // at any address
    std::memcpy(numbers.data(), operand.tensor.view.data, numbers.size() * sizeof(int64_t));
  }
  return numbers;
}

int64_t NumberOf(const Communicator& communicator) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(&communicator));
}

MoeRouting ReadHandle(const char* method, const py::object& handle,
                      const Communicator& communicator, std::optional<int64_t> tokens) {
  const py::object type = py::module_::import("collops.collectives.moe").attr("MoeHandle");
  if (!py::isinstance(handle, type)) {
    Throw(ERROR_INVALID_PARAM, method, ": handle must be a MoeHandle, as moe_dispatch returns it, ",
          "got ", std::string(py::str(py::type::handle_of(handle).attr("__name__"))));
  }
  if (ReadWhole(method, "handle.group", handle.attr("group")) != NumberOf(communicator)) {
    Throw(ERROR_INVALID_PARAM, method, ": the handle is of another communicator");
  }
  MoeRouting routing;
  int64_t sends[2];
  int64_t receives[2];
  int64_t positions[2];
  routing.send_counts = ReadNumbers(method, "handle.send_sizes", handle.attr("send_sizes"), sends);
  routing.recv_counts =
      ReadNumbers(method, "handle.recv_sizes", handle.attr("recv_sizes"), receives);
  routing.positions = ReadNumbers(method, "handle.positions", handle.attr("positions"), positions);
  for (const auto& sizes : {sends, receives}) {
    if (sizes[0] == communicator.size() && sizes[1] > 0 && sizes[1] == sends[1]) continue;
    Throw(ERROR_INVALID_TENSOR_DIM, method, ": handle.send_sizes and handle.recv_sizes must be [",
          communicator.size(), ", experts of a rank], got [", sends[0], ", ", sends[1], "] and [",
          receives[0], ", ", receives[1], "]");
  }
  routing.tokens = positions[0];
  routing.top_k = positions[1];
  routing.local_experts = sends[1];
  routing.digest = ReadWhole(method, "handle.digest", handle.attr("digest"));
  ThrowIfError(CheckRouting(method, routing, communicator, tokens));
  return routing;
}

bool ReadQuantize(const py::object& value) {
  if (value.is_none()) return false;
  if (PyUnicode_Check(value.ptr()) != 0 &&
      PyUnicode_CompareWithASCIIString(value.ptr(), "int8") == 0) {
    return true;
  }
  Throw(ERROR_INVALID_PARAM, MoeDispatch::kName, ": quantize must be None or \"int8\", got ",
        std::string(py::repr(value)));
}

// The result's memory, of that shape: `out` if given, else new memory like `like`.
py::object ReadResult(const TensorName& name, const py::object& out, const py::object& like,
                      const Rows& sizes, const char* dtype, Operands* kept, PlainTensor* result,
                      bool as_bytes = false) {
  const py::object memory = out.is_none() ? MakeLike(name.operation, like, sizes, dtype) : out;
  CallStream stream;
  Operand operand = ReadOutput(name, memory, sizes, &stream);
  ThrowIfError(operand.problem);
  if (as_bytes) MoveAsBytes(&operand);
  *result = Keep(std::move(operand), kept);
  return memory;
}

// Numbers as a tensor like `like`.
py::object NumbersLike(const char* method, const py::object& like, const Rows& sizes,
                       const std::vector<int64_t>& numbers) {
  Operands kept;
  PlainTensor tensor;
  const py::object made =
      ReadResult({method, "handle"}, py::none(), like, sizes, "int64", &kept, &tensor);
  std::copy(numbers.begin(), numbers.end(), static_cast<int64_t*>(tensor.view.data));
  return made;
}

// Rows that arrive for each of this rank's experts.
Rows CountsOf(const MoeRouting& routing) {
  Rows counts(static_cast<size_t>(routing.local_experts));
  for (size_t i = 0; i < routing.recv_counts.size(); ++i) {
    counts[i % counts.size()] += routing.recv_counts[i];
  }
  return counts;
}

}  // namespace

py::object PlainLevel::DispatchToExperts(const MoeArguments& given) {
  constexpr const char* kName = MoeDispatch::kName;
  const UserCall number(communicator().CallOfUser());
  if (starts()) {
    return InTurn(kName, [given](PlainLevel& now) { return now.DispatchToExperts(given); });
  }
  MoeDispatch call;
  Operands kept;
  const bool is_new = given.handle.is_none();
  Refusing(kName, [&] {
    call.quantizes = ReadQuantize(given.quantize);
    ReadRows({kName, "x"}, given.x, &kept, &call.x_shape, &call.x);
    call.scales = ReadOptional({kName, "scales"}, given.scales, &kept);
    ThrowIfError(call.CheckInputs(communicator()));
    if (is_new == given.topk_ids.is_none() || is_new == given.num_experts.is_none()) {
      Throw(ERROR_INVALID_PARAM, kName,
            ": pass topk_ids and num_experts, or the handle of an earlier call in their place");
    }
    if (!is_new) {
      call.routing = ReadHandle(kName, given.handle, communicator(), call.x_shape.sizes[0]);
      return;
    }
    CallStream stream;
    const Operand ids = ReadInput({kName, "topk_ids"}, given.topk_ids, &stream);
    ThrowIfError(ids.problem);
    ThrowIfError(
        call.Route(communicator(), ids.tensor, ReadWhole(kName, "num_experts", given.num_experts)));
  });
  if (is_new) RunWithoutGil([&] { return call.ShareCounts(&communicator()); });
  const py::object like = kept.front().object;
  const auto ranks = static_cast<int64_t>(communicator().size());
  py::object rows;
  py::object scales = py::none();
  py::object counts;
  py::object handle;
  Refusing(kName, [&] {
    const MoeRouting& routing = call.routing;
    const int64_t received = routing.received();
    rows = ReadResult({kName, "out"}, given.out, like, {received, call.x_shape.sizes[1]},
                      call.quantizes ? "int8" : nullptr, &kept, &call.rows,
                      !call.x_shape.type.empty());
    if (call.has_scales()) {
      scales = ReadResult({kName, "scales"}, py::none(), like, {received}, "float32", &kept,
                          &call.scaled);
    }
    const auto numbers = [&](const Rows& sizes, const std::vector<int64_t>& values) {
      return NumbersLike(kName, like, sizes, values);
    };
    counts = numbers({routing.local_experts}, CountsOf(routing));
    const auto from = [&](const char* label) { return given.handle.attr(label); };
    const Rows pairs = {ranks, routing.local_experts};
    handle =
        py::module_::import("collops.collectives.moe")
            .attr("MoeHandle")(is_new ? numbers(pairs, routing.send_counts) : from("send_sizes"),
                               is_new ? numbers(pairs, routing.recv_counts) : from("recv_sizes"),
                               is_new ? numbers({routing.tokens, routing.top_k}, routing.positions)
                                      : from("positions"),
                               scales, NumberOf(communicator()), routing.digest);
  });
  RunWithoutGil([&] { return call.Run(&communicator(), sent_rows_.get()); });
  return py::make_tuple(rows, counts, handle);
}

py::object PlainLevel::CombineFromExperts(const MoeArguments& given) {
  constexpr const char* kName = MoeCombine::kName;
  const UserCall number(communicator().CallOfUser());
  if (starts()) {
    return InTurn(kName, [given](PlainLevel& now) { return now.CombineFromExperts(given); });
  }
  MoeCombine call;
  Operands kept;
  py::object out;
  Refusing(kName, [&] {
    ReadRows({kName, "rows"}, given.x, &kept, &call.rows_shape, &call.rows);
    call.routing = ReadHandle(kName, given.handle, communicator(), std::nullopt);
    call.weights = ReadOptional({kName, "topk_weights"}, given.topk_weights, &kept);
    ThrowIfError(call.CheckInputs(communicator()));
    out = ReadResult({kName, "out"}, given.out, py::object(kept.front().object),
                     {call.routing.tokens, call.rows_shape.sizes[1]}, nullptr, &kept, &call.out);
  });
  RunWithoutGil([&] { return call.Run(&communicator(), sent_rows_.get()); });
  return out;
}

}  // namespace collops::bindings
