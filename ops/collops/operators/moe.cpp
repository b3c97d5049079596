#include "collops/operators/moe.h"

#include <cstring>
#include <utility>

#include "collops/kernels/reduce/reduce.h"
#include "collops/kernels/rows.h"
#include "collops/operators/moe_routing.h"

namespace collops {
namespace {

constexpr const char* kDispatch = "MoeDispatch";
constexpr const char* kDispatchCounts = "MoeDispatch without handle";
constexpr const char* kCombine = "MoeCombine";
constexpr const char* kHandle = "the handle (a digest)";
constexpr int64_t kScaleBytes = sizeof(float);
constexpr int64_t kMostExperts = 1 << 20;  // their counts travel to every rank

Status CheckOnCpu(const char* method, const Communicator& communicator) {
  COLLOPS_CHECK_ARG(communicator.device().kind == DeviceKind::kCpu, ERROR_UNSUPPORTED, method,
                    ": backend ", communicator.spec().backend,
                    " does not run it: use shm or ucx, and tensors of the CPU");
  return Ok();
}

Status CheckTwoDims(const char* method, const char* label, const char* dims,
                    const std::vector<int64_t>& sizes) {
  COLLOPS_CHECK_ARG(sizes.size() == 2, ERROR_INVALID_TENSOR_DIM_NUM, method, ": ", label,
                    " must be ", dims, ", got ", sizes.size(), " dims");
  return Ok();
}

// The name of the rows' element type.
const char* TypeOf(const RowShape& shape, const PlainTensor& rows) {
  return shape.type.empty() ? NameOfType(rows.view.desc) : shape.type.c_str();
}

int64_t NumelOf(const RowShape& shape) {
  return shape.sizes[0] * shape.sizes[1];
}

int64_t RowBytes(const RowShape& shape, DType dtype) {
  return shape.sizes[1] * (shape.type.empty() ? SizeOf(dtype) : shape.unit);
}

// At any address.
template <typename T>
T Load(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

std::vector<float> AsFloats(const PlainTensor& tensor) {
  std::vector<float> numbers(static_cast<size_t>(tensor.numel));
  kernels::ToFloat32(tensor.view.desc.dtype, tensor.view.data, tensor.numel, numbers.data());
  return numbers;
}

// The caller's own fault is what it hears of, whatever becomes of the refusal.
Status RefuseIfWrong(Communicator* communicator, const char* method, Status status) {
  if (!status.ok()) static_cast<void>(communicator->Refuse(method, status));
  return status;
}

template <typename Id>
Status RouteIds(const void* ids, MoeRouting* routing) {
  Rows* const counts = &routing->send_counts;
  const auto num_experts = static_cast<int64_t>(counts->size());
  const auto top_k = static_cast<size_t>(routing->top_k);
  for (size_t i = 0; i < routing->positions.size(); ++i) {
    const int64_t id = Load<Id>(ids, i);
    COLLOPS_CHECK_ARG(id >= -1 && id < num_experts, ERROR_INVALID_PARAM, MoeDispatch::kName,
                      ": topk_ids[", i / top_k, ", ", i % top_k, "] is ", id,
                      ": it must be an expert in [0, ", num_experts, "), or -1 for none");
    if (id >= 0) ++(*counts)[static_cast<size_t>(id)];
  }
  Rows next(counts->size());
  for (size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + (*counts)[e - 1];
  for (size_t i = 0; i < routing->positions.size(); ++i) {
    const int64_t id = Load<Id>(ids, i);
    if (id >= 0) routing->positions[i] = next[static_cast<size_t>(id)]++;
  }
  return Ok();
}

}  // namespace

Status MoeDispatch::CheckInputs(const Communicator& communicator) const {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(kName, communicator));
  COLLOPS_RETURN_IF_ERROR(CheckTwoDims(kName, "x", "[tokens, hidden]", x_shape.sizes));
  COLLOPS_RETURN_IF_ERROR(CheckWhole(x, kName, "x", x.numel, communicator.device()));
  const TensorDesc& desc = x.view.desc;
  COLLOPS_CHECK_ARG(!quantizes || (x_shape.type.empty() && kernels::CanWeigh(desc.dtype)),
                    ERROR_INVALID_TENSOR_INI_MATCH, kName,
                    ": quantize takes an x of float32, float16 or bfloat16, got ",
                    TypeOf(x_shape, x));
  if (!scales) return Ok();
  COLLOPS_CHECK_ARG(!quantizes, ERROR_INVALID_PARAM, kName,
                    ": pass quantize or scales, which are of an x that is quantised already");
  COLLOPS_CHECK_ARG(scales->view.desc.dtype == DType::kFloat32, ERROR_INVALID_TENSOR_INI_MATCH,
                    kName, ": scales must be float32, got ", NameOfType(scales->view.desc));
  COLLOPS_CHECK_ARG(scales->view.desc.shape == Shape({x_shape.sizes[0]}), ERROR_INVALID_TENSOR_DIM,
                    kName, ": scales must have shape [", x_shape.sizes[0],
                    "], one for each row of x, got ", ToString(scales->view.desc.shape));
  return CheckWhole(*scales, kName, "scales", x_shape.sizes[0], communicator.device());
}

Status MoeDispatch::Route(const Communicator& communicator, const PlainTensor& ids,
                          int64_t num_experts) {
  const int rank_size = communicator.size();
  const TensorDesc& desc = ids.view.desc;
  COLLOPS_CHECK_ARG(num_experts > 0 && num_experts <= kMostExperts && num_experts % rank_size == 0,
                    ERROR_INVALID_PARAM, kName, ": num_experts must be a multiple of the ",
                    rank_size, " ranks, at most ", kMostExperts, ", got ", num_experts);
  COLLOPS_CHECK_ARG(desc.dtype == DType::kInt32 || desc.dtype == DType::kInt64,
                    ERROR_INVALID_TENSOR_INI_MATCH, kName,
                    ": topk_ids must be int32 or int64, got ", NameOfType(desc));
  COLLOPS_CHECK_ARG(desc.shape.num_dims == 2 && desc.shape[0] == x_shape.sizes[0],
                    ERROR_INVALID_TENSOR_DIM, kName, ": topk_ids must be [", x_shape.sizes[0],
                    ", k], as many rows as x, got ", ToString(desc.shape));
  COLLOPS_RETURN_IF_ERROR(CheckWhole(ids, kName, "topk_ids", ids.numel, communicator.device()));
  routing.tokens = desc.shape[0];
  routing.top_k = desc.shape[1];
  routing.local_experts = num_experts / rank_size;
  routing.send_counts.assign(static_cast<size_t>(num_experts), 0);
  routing.positions.assign(static_cast<size_t>(ids.numel), -1);
  const void* const data = ids.view.data;
  return desc.dtype == DType::kInt32 ? RouteIds<int32_t>(data, &routing)
                                     : RouteIds<int64_t>(data, &routing);
}

void MoeDispatch::AddTerms(Agreement* agreement) const {
  agreement->EqualText("dtype", TypeOf(x_shape, x))
      .Equal("hidden", x_shape.sizes[1])
      .EqualText("quantize", quantizes ? "int8" : "None")
      .EqualText("scales", scales ? "float32" : "None");
}

Status MoeDispatch::ShareCounts(Communicator* communicator) {
  Agreement agreement(kDispatchCounts);
  AddTerms(&agreement);
  agreement.Equal("k of topk_ids", routing.top_k)
      .Equal("num_experts", static_cast<int64_t>(routing.send_counts.size()))
      .InPlainWords("moe_dispatch without handle", 1);
  const size_t size = routing.send_counts.size();
  Rows all(size * static_cast<size_t>(communicator->size()));
  COLLOPS_RETURN_IF_ERROR(communicator->Share(agreement, routing.send_counts.data(),
                                              static_cast<int64_t>(size * sizeof(int64_t)),
                                              all.data()));
  const int64_t own = communicator->rank() * routing.local_experts;
  for (size_t from = 0; from < all.size(); from += size) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from) + own;
    routing.recv_counts.insert(routing.recv_counts.end(), begin, begin + routing.local_experts);
  }
  routing.digest = HashOf(all.data(), all.size());
  return Ok();
}

Status MoeDispatch::CheckOutputs(const Communicator& communicator) const {
  const TensorDesc& want = x.view.desc;
  const TensorDesc& got = rows.view.desc;
  const DType dtype = quantizes ? DType::kInt8 : want.dtype;
  COLLOPS_CHECK_ARG(got.dtype == dtype, ERROR_INVALID_TENSOR_INI_MATCH, kName, ": out must be ",
                    Name(dtype), quantizes ? " with quantize" : " as x", ", got ", NameOfType(got));
  COLLOPS_RETURN_IF_ERROR(CheckWhole(rows, kName, "out", rows.numel, communicator.device()));
  COLLOPS_RETURN_IF_ERROR(CheckWritable(rows, kName, "out"));
  return CheckApart({x, rows, {}, nullptr, nullptr}, kName, std::nullopt, "");
}

Status MoeDispatch::Run(Communicator* communicator, SentRows* memory) const {
  const int rank_size = communicator->size();
  const int64_t x_bytes = RowBytes(x_shape, x.view.desc.dtype);
  const int64_t row_bytes = quantizes ? x_shape.sizes[1] : x_bytes;
  const int64_t stride = row_bytes + (has_scales() ? kScaleBytes : 0);
  const bool is_direct = IsInOrder(routing, rank_size) && !has_scales();
  MoeExchange exchange(kName, kDispatch, routing, false);
  AddTerms(exchange.agreement());
  exchange.agreement()->Equal(kHandle, routing.digest);
  char* sent = nullptr;
  char* received = nullptr;
  const auto prepare = [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(CheckOutputs(*communicator));
    return exchange.Prepare(communicator, stride, memory, &sent, is_direct ? nullptr : &received);
  };
  COLLOPS_RETURN_IF_ERROR(RefuseIfWrong(communicator, kName, prepare()));
  const kernels::RowPlaces places = {routing.positions.data(), routing.tokens, routing.top_k,
                                     stride};
  if (quantizes) {
    kernels::QuantizeRows(places, x.view.desc.dtype, x.view.data, x_shape.sizes[1], sent);
  } else {
    kernels::SpreadRows(places, x.view.data, row_bytes, scales ? scales->view.data : nullptr, sent);
  }
  COLLOPS_RETURN_IF_ERROR(exchange.Run(communicator, sent, is_direct ? rows.view.data : received));
  if (is_direct) return Ok();
  kernels::CopyRows(ReceivedRows(routing, rank_size), received, row_bytes, rows.view.data,
                    has_scales() ? static_cast<float*>(scaled.view.data) : nullptr);
  return Ok();
}

Status MoeCombine::CheckInputs(const Communicator& communicator) const {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(kName, communicator));
  COLLOPS_RETURN_IF_ERROR(CheckTwoDims(kName, "rows", "[rows, hidden]", rows_shape.sizes));
  const TensorDesc& desc = rows.view.desc;
  COLLOPS_CHECK_ARG(kernels::CanWeigh(desc.dtype), ERROR_INVALID_TENSOR_INI_MATCH, kName,
                    ": rows must be float32, float16 or bfloat16, got ", TypeOf(rows_shape, rows));
  COLLOPS_CHECK_ARG(rows_shape.sizes[0] == routing.received(), ERROR_INVALID_TENSOR_DIM, kName,
                    ": there are ", rows_shape.sizes[0], " rows, the dispatch has received ",
                    routing.received());
  COLLOPS_RETURN_IF_ERROR(
      CheckWhole(rows, kName, "rows", NumelOf(rows_shape), communicator.device()));
  if (!weights) return Ok();
  const TensorDesc& weight = weights->view.desc;
  COLLOPS_CHECK_ARG(kernels::CanWeigh(weight.dtype), ERROR_INVALID_TENSOR_INI_MATCH, kName,
                    ": topk_weights must be float32, float16 or bfloat16, got ",
                    NameOfType(weight));
  const Shape want{routing.tokens, routing.top_k};
  COLLOPS_CHECK_ARG(weight.shape == want, ERROR_INVALID_TENSOR_DIM, kName,
                    ": topk_weights must have topk_ids' shape ", ToString(want), ", got ",
                    ToString(weight.shape));
  return CheckWhole(*weights, kName, "topk_weights", weights->numel, communicator.device());
}

Status MoeCombine::Run(Communicator* communicator, SentRows* memory) const {
  const int rank_size = communicator->size();
  const DType dtype = rows.view.desc.dtype;
  const int64_t row_bytes = RowBytes(rows_shape, dtype);
  const bool is_direct = IsInOrder(routing, rank_size);
  MoeExchange exchange(kName, kCombine, routing, true);
  exchange.agreement()
      ->EqualText("dtype", Name(dtype))
      .Equal("hidden", rows_shape.sizes[1])
      .Equal(kHandle, routing.digest);
  char* returned = nullptr;
  char* sent = nullptr;
  const auto prepare = [&]() -> Status {
    const PlainTensors tensors = {rows, out, {}, nullptr, nullptr};
    COLLOPS_CHECK_ARG(out.view.desc.dtype == dtype, ERROR_INVALID_TENSOR_INI_MATCH, kName,
                      ": out must be ", Name(dtype), " as rows, got ", NameOfType(out.view.desc));
    COLLOPS_RETURN_IF_ERROR(CheckWhole(out, kName, "out", out.numel, communicator->device()));
    COLLOPS_RETURN_IF_ERROR(CheckWritable(out, kName, "out"));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, kName, std::nullopt, ""));
    return exchange.Prepare(communicator, row_bytes, memory, is_direct ? nullptr : &sent,
                            &returned);
  };
  COLLOPS_RETURN_IF_ERROR(RefuseIfWrong(communicator, kName, prepare()));
  if (!is_direct) {
    std::vector<kernels::RowRange> ranges = ReceivedRows(routing, rank_size);
    for (kernels::RowRange& range : ranges) std::swap(range.to, range.from);
    kernels::CopyRows(ranges, rows.view.data, row_bytes, sent, nullptr);
  }
  COLLOPS_RETURN_IF_ERROR(exchange.Run(communicator, is_direct ? rows.view.data : sent, returned));
  const std::vector<float> numbers = weights ? AsFloats(*weights) : std::vector<float>();
  kernels::WeightedSums({routing.positions.data(), routing.tokens, routing.top_k, row_bytes}, dtype,
                        returned, rows_shape.sizes[1], weights ? numbers.data() : nullptr,
                        out.view.data);
  return Ok();
}

}  // namespace collops
