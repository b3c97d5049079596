// torch's operators on tensors of type CUDA: each runs torch's own kernel for CPUs on the bytes of
// the device memory, when it is its turn on the current stream, and the host goes on.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>
#include <optional>
#include <vector>

#include "driver/memory.h"
#include "torch/allocator.h"
#include "torch/device.h"

namespace torch_on_sim {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

Tensor Empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType type, int device) {
  const OnDevice scope(device);
  return at::detail::empty_strided_generic(sizes, strides, DeviceAllocator(), kKeys, type);
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

// Results of the sizes that the operator's own arithmetic on sizes says; nothing if it has none.
std::optional<std::vector<Tensor>> EmptyResults(const c10::OperatorHandle& op, const Stack& args,
                                                int device) {
  Stack metas = ChangedAll(args, [](const Tensor& x) {
    return x.is_cuda() ? at::empty_strided(x.sizes(), x.strides(), x.options().device(c10::kMeta))
                       : x;
  });
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

// The operators that give a view of an argument, those that write into arguments, and the others.
void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const Stack args(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  const int device = DeviceOf(args);
  const c10::Stream stream = CurrentStream(device);
  const auto& returns = schema.returns();
  const bool writes = std::any_of(
      schema.arguments().begin(), schema.arguments().end(),
      [](const c10::Argument& arg) { return arg.alias_info() && arg.alias_info()->isWrite(); });
  const bool is_view = !writes && !returns.empty() && returns[0].alias_info() != nullptr;
  HostViews views;
  const Stack hosts = OnHost(args, &views);
  if (is_view) {
    Stack values = hosts;
    Call(op, &values);
    for (c10::IValue& value : values) {
      stack->push_back(Changed(value, [&](const Tensor& x) { return views.Back(x).value(); }));
    }
    return;
  }
  if (writes) {
    Launch(stream, [op, hosts] { Run(op, hosts, {}); });
    for (size_t i = 0, given = 0; i < returns.size(); ++i, ++given) {
      while (!(schema.arguments()[given].alias_info() &&
               schema.arguments()[given].alias_info()->isWrite())) {
        ++given;
      }
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

int IndexOf(std::optional<c10::Device> device) {
  return device && device->has_index() ? device->index() : CurrentDevice();
}

Tensor EmptyOf(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> type,
               std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>,
               std::optional<c10::MemoryFormat> format) {
  const OnDevice scope(IndexOf(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), DeviceAllocator(), kKeys,
                                   c10::dtype_or_default(type), format);
}

Tensor EmptyStrided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                    std::optional<at::ScalarType> type, std::optional<c10::Layout>,
                    std::optional<c10::Device> device, std::optional<bool>) {
  return Empty(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
               c10::dtype_or_default(type), IndexOf(device));
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

Tensor& SetStorage(Tensor& x, c10::Storage storage, c10::SymInt offset, c10::SymIntArrayRef sizes,
                   c10::SymIntArrayRef strides) {
  c10::TensorImpl* const own = x.unsafeGetTensorImpl();
  own->set_storage_keep_dtype(std::move(storage));
  own->set_storage_offset(offset.expect_int());
  own->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
  return x;
}

const Tensor& Resize(const Tensor& x, c10::SymIntArrayRef sizes, std::optional<c10::MemoryFormat>) {
  const Tensor made = at::empty_symint(sizes, x.options());
  c10::TensorImpl* const own = x.unsafeGetTensorImpl();
  if (made.nbytes() > x.storage().nbytes()) own->set_storage_keep_dtype(made.storage());
  own->set_sizes_and_strides(made.sizes(), made.strides());
  return x;
}

void KeepForStream(Tensor& x, c10::Stream stream) {
  RecordStream(x.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &EmptyOf);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("copy_", &Copy);
  library.impl("set_.source_Storage_storage_offset", &SetStorage);
  library.impl("resize_", &Resize);
  library.impl("record_stream", &KeepForStream);
}

}  // namespace torch_on_sim
