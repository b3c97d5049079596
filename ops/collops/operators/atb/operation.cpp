#include "collops/operators/atb/operation.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <vector>

#include "collops/core/tensor.h"

namespace collops {
namespace atb {
namespace {

std::string& Message() {
  thread_local std::string message;
  return message;
}

// All that is written is errors.
std::atomic<LogLevel> log_level{LogLevel::ERROR};

collops::TensorDesc ToOwn(const TensorDesc& desc) {
  // A shape of too many dimensions keeps their number, which the checks refuse.
  const int num_dims = static_cast<int>(std::min<uint64_t>(desc.shape.dimNum, MAX_DIM + 1));
  return {static_cast<DType>(desc.dtype), static_cast<Format>(desc.format),
          Shape::From(desc.shape.dims, num_dims)};
}

collops::Status ToViews(const char* operation, const char* label, const SVector<Tensor>& tensors,
                        std::vector<TensorView>* views) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    TensorView view;
    view.desc = ToOwn(tensor.desc);
    view.data = tensor.deviceData != nullptr ? tensor.deviceData : tensor.hostData;
    views->push_back(view);
    // These are refused by the operation's checks.
    if (tensor.desc.shape.dimNum > MAX_DIM || tensor.desc.dtype == ACL_DT_UNDEFINED) continue;
    const uint64_t bytes = Utils::GetTensorSize(tensor);
    COLLOPS_CHECK_ARG(tensor.dataSize == bytes, ERROR_INVALID_PARAM, operation, ": ", label, "[", i,
                      "].dataSize must be ", bytes, ", the bytes of ", Name(view.desc.dtype), " ",
                      ToString(view.desc.shape), ", got ", tensor.dataSize);
  }
  return Ok();
}

collops::Status ToPack(const char* operation, const VariantPack& tensors, const Context* context,
                       collops::VariantPack* pack) {
  COLLOPS_CHECK_ARG(context != nullptr, ERROR_INVALID_PARAM, operation, ": context is null");
  COLLOPS_RETURN_IF_ERROR(ToViews(operation, "inTensors", tensors.inTensors, &pack->inputs));
  return ToViews(operation, "outTensors", tensors.outTensors, &pack->outputs);
}

collops::Status CheckStream(const char* operation, const std::vector<aclrtStream>& streams,
                            uint32_t id) {
  COLLOPS_CHECK_ARG(id < streams.size(), ERROR_INVALID_PARAM, operation, ": the stream id is ", id,
                    ", and must be below ", streams.size(),
                    ", the number of the context's streams: call SetExecuteStreams");
  COLLOPS_CHECK_ARG(streams[id] != nullptr, ERROR_INVALID_PARAM, operation,
                    ": the context has no stream: call SetExecuteStream");
  return Ok();
}

}  // namespace

const char* LastMessage() {
  return Message().c_str();
}

void WriteError(const std::string& message) {
  Message() = message;
  if (log_level == LogLevel::NONE) return;
  std::fprintf(stderr, "collops: %s\n", Message().c_str());
}

Status Report(const collops::Status& status) {
  if (!status.ok()) WriteError(Concat(ErrorName(status.code()), ": ", status.message()));
  return status.code();
}

Status Context::SetExecuteStream(aclrtStream stream) {
  streams_[0] = stream;
  return NO_ERROR;
}

Status Context::SetExecuteStreams(const std::vector<aclrtStream>& streams) {
  if (streams.empty()) {
    return Report(Error(ERROR_INVALID_PARAM, "SetExecuteStreams: there must be a stream"));
  }
  streams_ = streams;
  return NO_ERROR;
}

Status Context::SetLaunchMode(LaunchMode mode) {
  if (mode != KERNEL_LAUNCH_MODE && mode != GRAPH_LAUNCH_MODE) {
    return Report(Error(ERROR_INVALID_PARAM, "SetLaunchMode: mode must be 0 (KERNEL_LAUNCH_MODE) ",
                        "or 1 (GRAPH_LAUNCH_MODE), got ", static_cast<int>(mode)));
  }
  launch_mode_ = mode;
  return NO_ERROR;
}

Status Context::SetAsyncTilingCopyStatus(bool enable) {
  copies_tiling_ = enable;
  return NO_ERROR;
}

Status CreateContext(Context** context) {
  if (context == nullptr) {
    return Report(Error(ERROR_INVALID_PARAM, "CreateContext: context is null"));
  }
  *context = new Context;
  return NO_ERROR;
}

Status CreateContext(Context** context, const std::function<void*(size_t)>& alloc,
                     const std::function<void(void*)>& dealloc) {
  if ((alloc == nullptr) != (dealloc == nullptr)) {
    return Report(Error(ERROR_INVALID_PARAM,
                        "CreateContext: alloc and dealloc must both be functions, or neither"));
  }
  return CreateContext(context);
}

Status CreateContext(Context** context, uint32_t hostTilingBlockNum,
                     uint32_t deviceTilingBlockNum) {
  static constexpr uint32_t kMost = 1024;
  const auto check = [](const char* name, uint32_t blocks, uint32_t least) -> collops::Status {
    COLLOPS_CHECK_ARG(blocks >= least && blocks <= kMost, ERROR_INVALID_PARAM,
                      "CreateContext: ", name, " must be from ", least, " to ", kMost, ", got ",
                      blocks);
    return Ok();
  };
  collops::Status status = check("hostTilingBlockNum", hostTilingBlockNum, 128);
  if (status.ok()) status = check("deviceTilingBlockNum", deviceTilingBlockNum, 32);
  return status.ok() ? CreateContext(context) : Report(status);
}

Status DestroyContext(Context* context) {
  delete context;
  return NO_ERROR;
}

Status DestroyOperation(Operation* operation) {
  delete operation;
  return NO_ERROR;
}

Status SetExecuteStreamId(Operation* operation, uint32_t streamId) {
  if (operation == nullptr) {
    return Report(Error(ERROR_INVALID_PARAM, "SetExecuteStreamId: operation is null"));
  }
  operation->set_stream_id(streamId);
  return NO_ERROR;
}

uint32_t GetExecuteStreamId(Operation* operation) {
  return operation == nullptr ? 0 : operation->stream_id();
}

Status Operation::InferShape(const SVector<TensorDesc>& inTensorDescs,
                             SVector<TensorDesc>& outTensorDescs) const {
  std::vector<collops::TensorDesc> inputs;
  for (const TensorDesc& desc : inTensorDescs) inputs.push_back(ToOwn(desc));
  std::vector<collops::TensorDesc> outputs;
  const Status status = Report(operation_->InferShape(inputs, &outputs));
  outTensorDescs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const collops::TensorDesc& own = outputs[i];
    TensorDesc& desc = outTensorDescs[i];
    desc.dtype = static_cast<aclDataType>(own.dtype);
    desc.format = static_cast<aclFormat>(own.format);
    desc.shape.dimNum = static_cast<uint64_t>(own.shape.num_dims);
    std::copy_n(own.shape.dims, own.shape.num_dims, desc.shape.dims);
  }
  return status;
}

Status Operation::Setup(const VariantPack& variantPack, uint64_t& workspaceSize, Context* context) {
  collops::VariantPack pack;
  collops::Status status = ToPack(operation_->Name(), variantPack, context, &pack);
  if (status.ok()) status = operation_->GetWorkspaceSize(pack, &workspaceSize);
  return Report(status);
}

Status Operation::Execute(const VariantPack& variantPack, uint8_t* workspace,
                          uint64_t workspaceSize, Context* context) {
  const char* const name = operation_->Name();
  collops::VariantPack pack;
  collops::Status status = ToPack(name, variantPack, context, &pack);
  if (status.ok()) status = CheckStream(name, context->GetExecuteStreams(), stream_id_);
  if (status.ok()) return Report(operation_->Execute(pack, workspace, workspaceSize, nullptr));
  // First, because the refusal may wait until the other ranks have arrived.
  const Status code = Report(status);
  // The other ranks hear at once why this one does not take part; the error here matters more.
  static_cast<void>(operation_->Refuse(status));
  return code;
}

std::string Utils::GetAtbVersion() {
  return "collops";
}

Status Utils::SetLogLevel(LogLevel atbLogLevel) {
  const int level = static_cast<int>(atbLogLevel);
  if (level < static_cast<int>(LogLevel::DEBUG) || level > static_cast<int>(LogLevel::NONE)) {
    return Report(Error(ERROR_INVALID_PARAM,
                        "SetLogLevel: the level must be from 0 (DEBUG) to 4 (NONE), got ", level));
  }
  log_level = atbLogLevel;
  return NO_ERROR;
}

Status Utils::ResetLogLevel() {
  return SetLogLevel(LogLevel::ERROR);
}

// Without signs, so that numbers which no tensor has do not overflow.
uint64_t Utils::GetTensorNumel(const TensorDesc& desc) {
  uint64_t count = 1;
  for (uint64_t i = 0; i < std::min<uint64_t>(desc.shape.dimNum, MAX_DIM); ++i) {
    count *= static_cast<uint64_t>(desc.shape.dims[i]);
  }
  return count;
}

uint64_t Utils::GetTensorSize(const TensorDesc& desc) {
  return GetTensorNumel(desc) * static_cast<uint64_t>(SizeOf(static_cast<DType>(desc.dtype)));
}

}  // namespace atb
}  // namespace collops
