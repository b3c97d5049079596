// The handlers that compiled programs of XLA call: calls of the plain level, on the threads of XLA
// and without the GIL. collops.jax registers them.

#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "c/groups.h"
#include "collops/operators/plain/plain_calls.h"
#include "collops/operators/ragged_all_to_all.h"
#include "module.h"
#include "xla/ffi.h"

namespace collops::bindings {
namespace {

DType DTypeOf(xla::ElementType type) {
  switch (type) {
    case xla::kPred:
      return DType::kBool;
    case xla::kS8:
      return DType::kInt8;
    case xla::kS16:
      return DType::kInt16;
    case xla::kS32:
      return DType::kInt32;
    case xla::kS64:
      return DType::kInt64;
    case xla::kU8:
      return DType::kUInt8;
    case xla::kU16:
      return DType::kUInt16;
    case xla::kU32:
      return DType::kUInt32;
    case xla::kU64:
      return DType::kUInt64;
    case xla::kF16:
      return DType::kFloat16;
    case xla::kF32:
      return DType::kFloat32;
    case xla::kF64:
      return DType::kFloat64;
    case xla::kC64:
      return DType::kComplex64;
    case xla::kBF16:
      return DType::kBFloat16;
    case xla::kC128:
      return DType::kComplex128;
    case xla::kToken:
      break;
  }
  return DType::kUndefined;  // collops.jax passes no array of another type
}

// What XLA passes to a handler, by our names.
class Frame {
 public:
  explicit Frame(const xla::CallFrame& frame) : frame_(frame) {}

  const xla::Buffer& argument(int64_t index) const { return *frame_.arguments.buffers[index]; }
  const xla::Buffer& result(int64_t index) const { return *frame_.results.buffers[index]; }

  int64_t Number(const char* name) const {
    const void* const value = Find(name, xla::kScalar);
    if (value == nullptr) return 0;
    return *static_cast<const int64_t*>(static_cast<const xla::Scalar*>(value)->value);
  }

  Rows List(const char* name) const {
    const void* const value = Find(name, xla::kArray);
    if (value == nullptr) return {};
    const auto& array = *static_cast<const xla::Array*>(value);
    const auto* const numbers = static_cast<const int64_t*>(array.data);
    return {numbers, numbers + array.size};
  }

 private:
  const void* Find(const char* name, int type) const {
    const xla::Attributes& all = frame_.attributes;
    for (int64_t i = 0; i < all.size; ++i) {
      const std::string_view found(all.names[i]->data, all.names[i]->size);
      if (all.types[i] == type && found == name) return all.values[i];
    }
    return nullptr;
  }

  const xla::CallFrame& frame_;
};

PlainTensor TensorOf(const xla::Buffer& buffer) {
  PlainTensor tensor;
  tensor.view.desc.dtype = DTypeOf(buffer.type);
  tensor.view.desc.shape = Shape::From(buffer.dims, static_cast<int>(buffer.num_dims));
  tensor.view.data = buffer.data;
  tensor.numel = 1;
  for (int64_t i = 0; i < buffer.num_dims; ++i) tensor.numel *= buffer.dims[i];
  return tensor;
}

// Whole numbers of 32 or 64 bits.
Rows NumbersOf(const xla::Buffer& list) {
  Rows numbers;
  for (int64_t i = 0; i < list.dims[0]; ++i) {
    numbers.push_back(list.type == xla::kS64 ? static_cast<const int64_t*>(list.data)[i]
                                             : static_cast<const int32_t*>(list.data)[i]);
  }
  return numbers;
}

// A collective of x: argument 0 and result 0.
Status RunPlain(PlainCall::Method method, const Frame& frame, PlainCalls* calls,
                Communicator* communicator) {
  const UserCall number(communicator->CallOfUser());
  const xla::Buffer& x = frame.argument(0);
  PlainTensors tensors;
  tensors.x = TensorOf(x);
  tensors.out = TensorOf(frame.result(0));
  PlainCall call(method);
  call.x.sizes.assign(x.dims, x.dims + x.num_dims);
  call.dtype = tensors.x.view.desc.dtype;
  call.op = static_cast<ReduceOp>(frame.Number("op"));
  if (method != PlainCall::kAllReduce) call.sizes = frame.List("sizes");
  call.receives = frame.List("recv_sizes");
  std::shared_ptr<PlainCalls::Kept> kept = calls->Find(call);
  if (kept == nullptr) {
    const Status made = calls->Make(call, &kept);
    if (!made.ok()) {
      static_cast<void>(communicator->Refuse(call.name(), made));
      return made;
    }
  }
  return kept->plan->Run(communicator, tensors);
}

// ragged_all_to_all, or the way back of its gradients: both arrays are results then, and the first
// argument is in the memory of the second result.
Status RunRagged(bool goes_back, const Frame& frame, Communicator* communicator) {
  const xla::Buffer& operand = goes_back ? frame.result(0) : frame.argument(0);
  const xla::Buffer& output = frame.result(goes_back ? 1 : 0);
  const int64_t lists = goes_back ? 1 : 2;  // where they begin
  RaggedExchange exchange;
  exchange.dtype = DTypeOf(operand.type);
  exchange.row = Shape::From(operand.dims + 1, static_cast<int>(operand.num_dims) - 1);
  exchange.operand = operand.data;
  exchange.operand_rows = operand.dims[0];
  exchange.output = output.data;
  exchange.output_rows = output.dims[0];
  exchange.input_offsets = NumbersOf(frame.argument(lists));
  exchange.send_sizes = NumbersOf(frame.argument(lists + 1));
  exchange.output_offsets = NumbersOf(frame.argument(lists + 2));
  exchange.recv_sizes = NumbersOf(frame.argument(lists + 3));
  return goes_back ? RaggedAllToAllGradient(communicator, exchange)
                   : RaggedAllToAll(communicator, exchange);
}

// What a program calls. The names are PlainCall's, and two more.
enum Target { kRagged = 100, kRaggedGradient };

Status Run(int target, const Frame& frame) {
  c::InUse use;
  const auto handle = static_cast<uintptr_t>(frame.Number("comm"));
  const Status found = c::Groups::Instance().Find(
      "collops.jax", reinterpret_cast<const collops_comm*>(handle), &use);
  COLLOPS_CHECK_ARG(found.ok(), ERROR_INVALID_PARAM,
                    "the communicator for which this program was compiled is gone: keep it open "
                    "as long as the program is called");
  if (target == kRagged || target == kRaggedGradient) {
    return RunRagged(target == kRaggedGradient, frame, use.communicator.get());
  }
  return RunPlain(static_cast<PlainCall::Method>(target), frame, &use.group->calls,
                  use.communicator.get());
}

xla::ErrorCode CodeOf(const Status& status) {
  switch (status.code()) {
    case ERROR_TIMEOUT:
      return xla::kDeadlineExceeded;
    case ERROR_PEER_LOST:
      return xla::kUnavailable;
    case ERROR_RANK_MISMATCH:
      return xla::kFailedPrecondition;
    case ERROR_UNSUPPORTED:
      return xla::kUnimplemented;
    case ERROR_ABORTED:
      return xla::kAborted;
    case ERROR_OUT_OF_HOST_MEMORY:
      return xla::kResourceExhausted;
    case ERROR_RT_FAIL:
      return xla::kInternal;
    default:
      return xla::kInvalidArgument;
  }
}

// Answers the question that XLA asks in place of a call when the handler is registered.
bool AnswersVersion(const xla::CallFrame& frame) {
  xla::Extension* const extension = frame.extensions;
  if (extension == nullptr || extension->type != xla::MetadataExtension::kType) return false;
  xla::Metadata& metadata = *reinterpret_cast<xla::MetadataExtension*>(extension)->metadata;
  metadata.version.major = xla::kMajor;
  metadata.version.minor = frame.api->version.minor;  // which only adds
  metadata.traits = 0;
  return true;
}

template <int kTarget>
xla::Error* Handle(xla::CallFrame* frame) {
  if (AnswersVersion(*frame) || frame->stage != xla::kExecute) return nullptr;
  Status status;
  try {
    status = Run(kTarget, Frame(*frame));
  } catch (const std::exception& error) {  // XLA is compiled without exceptions
    status = Error(ERROR_RT_FAIL, error.what());
  }
  if (status.ok()) return nullptr;
  xla::CreateErrorArguments arguments = {sizeof(arguments), nullptr, status.message().c_str(),
                                         CodeOf(status)};
  return frame->api->create_error(&arguments);
}

// As jax.ffi.register_ffi_target() takes it.
template <int kTarget>
py::capsule CapsuleOf() {
  return py::capsule(reinterpret_cast<void*>(&Handle<kTarget>), "xla._CUSTOM_CALL_TARGET");
}

}  // namespace

void BindXla(py::module_& module) {
  module.def("xla_handlers", [] {
    py::dict handlers;
    handlers["all_gatherv"] = CapsuleOf<PlainCall::kAllGatherV>();
    handlers["all_reduce"] = CapsuleOf<PlainCall::kAllReduce>();
    handlers["all_to_allv"] = CapsuleOf<PlainCall::kAllToAllV>();
    handlers["ragged_all_to_all"] = CapsuleOf<kRagged>();
    handlers["ragged_all_to_all_gradient"] = CapsuleOf<kRaggedGradient>();
    handlers["reduce_scatterv"] = CapsuleOf<PlainCall::kReduceScatterV>();
    return handlers;
  });
}

}  // namespace collops::bindings
