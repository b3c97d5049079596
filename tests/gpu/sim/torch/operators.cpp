// torch's operators on tensors of type CUDA: each runs torch's own kernel for CPUs on the bytes of
// the device memory, when it is its turn on the current stream, and the host goes on.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/memory.h"
#include "torch/device.h"

namespace torch_on_sim {
namespace {

using at::Tensor;
using torch::jit::Stack;

// What concerns memory alone: a CUDA build's own, and that of without_cuda/memory_operators.cpp.
constexpr const char* kKept[] = {
    "empty.memory_format",
    "empty_strided",
    "set_.source_Storage_storage_offset",
    "resize_",
    "record_stream",
    "_local_scalar_dense",
    "copy_",  // which is below
};

Tensor Empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType type, int device) {
  return at::empty_strided(sizes, strides, at::TensorOptions(type).device(at::kCUDA, device));
}

// CPU tensors on the bytes of device tensors; those of one storage share one. They keep no memory
// from being given out again, as a stream does not either.
class HostViews {
 public:
  Tensor Of(const Tensor& x) {
    const c10::Storage& storage = x.storage();
    auto found = views_.find(storage.unsafeGetStorageImpl());
    if (found == views_.end()) {
      void* const host = collops_sim::HostView(reinterpret_cast<uint64_t>(storage.data()));
      c10::Storage view(c10::Storage::use_byte_size_t(), storage.nbytes(),
                        c10::DataPtr(host, c10::kCPU));
      found = views_.emplace(storage.unsafeGetStorageImpl(), std::pair(storage, view)).first;
    }
    Tensor view = Strided(found->second.second, c10::DispatchKey::CPU, x);
    view._set_conj(x.is_conj());
    view._set_neg(x.is_neg());
    return view;
  }

  // The device tensor of a view of one of these, if it is one.
  std::optional<Tensor> Back(const Tensor& view) const {
    for (const auto& [_, pair] : views_) {
      const auto& [storage, host] = pair;
      if (host.unsafeGetStorageImpl() != view.storage().unsafeGetStorageImpl()) continue;
      Tensor made = Strided(storage, c10::DispatchKey::CUDA, view);
      made._set_conj(view.is_conj());
      made._set_neg(view.is_neg());
      return made;
    }
    return std::nullopt;
  }

 private:
  static Tensor Strided(const c10::Storage& storage, c10::DispatchKey key, const Tensor& like) {
    Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                           c10::DispatchKeySet(key), like.dtype());
    made.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
    return made;
  }

  std::map<void*, std::pair<c10::Storage, c10::Storage>> views_;
};

// The same value with each tensor in it changed.
template <class Change>
c10::IValue Changed(const c10::IValue& value, Change&& change) {
  if (value.isTensor()) return value.toTensor().defined() ? change(value.toTensor()) : value;
  if (value.isTensorList()) {
    c10::List<Tensor> made;
    for (const Tensor& x : value.toTensorVector()) made.push_back(change(x));
    return made;
  }
  if (value.isList() && !value.toList().empty()) {  // of tensors that may be missing
    c10::impl::GenericList made(value.toList().elementType());
    for (const c10::IValue& each : value.toListRef()) made.push_back(Changed(each, change));
    return made;
  }
  return value;
}

template <class Change>
Stack ChangedAll(const Stack& values, Change&& change) {
  Stack made;
  for (const c10::IValue& value : values) made.push_back(Changed(value, change));
  return made;
}

void Call(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(*stack);
}

int DeviceOf(const Stack& args) {
  int device = -1;
  for (const c10::IValue& arg : args) {
    Changed(arg, [&](const Tensor& x) {
      if (x.is_cuda()) device = x.device().index();
      return x;
    });
  }
  if (device >= 0) return device;
  for (const c10::IValue& arg : args) {
    if (arg.isDevice() && arg.toDevice().is_cuda() && arg.toDevice().has_index()) {
      return arg.toDevice().index();
    }
  }
  return CurrentDevice();
}

Stack OnHost(const Stack& args, HostViews* views) {
  return ChangedAll(args, [&](const Tensor& x) { return x.is_cuda() ? views->Of(x) : x; });
}

// Tensors of the same sizes without any data.
Stack Metas(const Stack& args) {
  return ChangedAll(args, [](const Tensor& x) {
    return x.is_cuda() ? at::empty_strided(x.sizes(), x.strides(), x.options().device(c10::kMeta))
                       : x;
  });
}

// Results of the sizes that the operator's own arithmetic on sizes says; nothing if it has none.
std::optional<std::vector<Tensor>> EmptyResults(const c10::OperatorHandle& op, const Stack& args,
                                                int device) {
  Stack metas = Metas(args);
  std::vector<Tensor> made;
  try {
    Call(op, &metas);
    for (const c10::IValue& value : metas) {
      if (!value.isTensor()) return std::nullopt;
      const Tensor& meta = value.toTensor();
      made.push_back(Empty(meta.sizes(), meta.strides(), meta.scalar_type(), device));
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return made;
}

Tensor OnDeviceNow(const Tensor& x, int device) {
  if (!x.is_cpu()) return x;
  Tensor made = Empty(x.sizes(), x.strides(), x.scalar_type(), device);
  HostViews().Of(made).copy_(x);
  return made;
}

// On the stream. Holds no device memory, which may not be freed there.
void Run(const c10::OperatorHandle& op, Stack values, const std::vector<Tensor>& targets) {
  Call(op, &values);
  for (size_t i = 0; i < targets.size(); ++i) Tensor(targets[i]).copy_(values[i].toTensor());
}

bool Writes(const c10::Argument& arg) {
  return arg.alias_info() != nullptr && arg.alias_info()->isWrite();
}

bool Writes(const c10::FunctionSchema& schema) {
  const auto& args = schema.arguments();
  return std::any_of(args.begin(), args.end(), [](const auto& arg) { return Writes(arg); });
}

// Gives the tensors that an operator writes, and that are empty, the sizes of its results.
void ResizeEmpty(const c10::OperatorHandle& op, const Stack& args) {
  std::vector<size_t> empty;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool writes = Writes(op.schema().arguments()[i]) && args[i].isTensor();
    if (writes && args[i].toTensor().is_cuda() && args[i].toTensor().numel() == 0) {
      empty.push_back(i);
    }
  }
  if (empty.empty()) return;
  const Stack metas = Metas(args);
  Stack values = metas;
  Call(op, &values);
  for (const size_t i : empty) args[i].toTensor().resize_(metas[i].toTensor().sizes());
}

// A view of an argument, of which only sizes and strides are computed.
bool IsView(const c10::FunctionSchema& schema) {
  return !Writes(schema) && !schema.returns().empty() &&
         schema.returns()[0].alias_info() != nullptr;
}

// The operators that give a view of an argument, those that write into arguments, and the others.
void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const Stack args(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  const int device = DeviceOf(args);
  const c10::Stream stream = CurrentStream(device);
  const auto& returns = schema.returns();
  if (Writes(schema)) ResizeEmpty(op, args);
  HostViews views;
  const Stack hosts = OnHost(args, &views);
  if (IsView(schema)) {
    Stack values = hosts;
    Call(op, &values);
    for (c10::IValue& value : values) {
      stack->push_back(Changed(value, [&](const Tensor& x) { return views.Back(x).value(); }));
    }
    return;
  }
  if (Writes(schema)) {
    Launch(stream, [op, hosts] { Run(op, hosts, {}); });
    for (size_t i = 0, given = 0; i < returns.size(); ++i, ++given) {
      while (!Writes(schema.arguments()[given])) ++given;
      stack->push_back(args[given]);
    }
    return;
  }
  if (const auto results = EmptyResults(op, args, device)) {
    std::vector<Tensor> targets;
    for (const Tensor& result : *results) targets.push_back(views.Of(result));
    Launch(stream, [op, hosts, targets] { Run(op, hosts, targets); });
    for (const Tensor& result : *results) stack->push_back(result);
    return;
  }
  Synchronize(stream);
  Stack values = hosts;
  Call(op, &values);
  for (const c10::IValue& value : values) {
    stack->push_back(Changed(value, [&](const Tensor& x) { return OnDeviceNow(x, device); }));
  }
}

Tensor& Copy(Tensor& to, const Tensor& from, bool) {
  HostViews views;
  if (to.is_cpu()) {  // the host waits, as for pageable memory
    Synchronize(CurrentStream(from.device().index()));
    return to.copy_(views.Of(from));
  }
  const c10::Stream stream = CurrentStream(to.device().index());
  if (from.is_cuda() && from.device() != to.device()) {
    Synchronize(CurrentStream(from.device().index()));
  }
  const Tensor target = views.Of(to);
  const Tensor source = from.is_cuda() ? views.Of(from) : from.clone();
  Launch(stream, [target, source] { Tensor(target).copy_(source); });
  return to;
}

// What torch's CUDA build has kernels for, which no simulated GPU runs.
std::vector<std::string> NamesOfKernels() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<std::string> names;
  for (const auto& name : dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA)) {
    const auto op = dispatcher.findSchema(name);
    if (!op || IsView(op->schema()) || name.getNamespace() != "aten") continue;
    const std::string full = toString(name).substr(std::strlen("aten::"));
    const auto* const kept = std::find(std::begin(kKept), std::end(kKept), full);
    if (kept == std::end(kKept)) names.push_back(full);
  }
  return names;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (const std::string& name : NamesOfKernels()) {
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&Fallback>());
  }
  library.impl("copy_", &Copy);
}

}  // namespace torch_on_sim
