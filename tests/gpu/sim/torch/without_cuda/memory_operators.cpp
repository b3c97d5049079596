// Operators on memory of type CUDA for a torch that was built for CPUs.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include <optional>

#include "torch/device.h"
#include "torch/without_cuda/allocator.h"

namespace torch_on_sim {
namespace {

using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

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
  const OnDevice scope(IndexOf(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes),
                                           C10_AS_INTARRAYREF_SLOW(strides), DeviceAllocator(),
                                           kKeys, c10::dtype_or_default(type));
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

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &EmptyOf);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("set_.source_Storage_storage_offset", &SetStorage);
  library.impl("resize_", &Resize);
  library.impl("record_stream", &KeepForStream);
}

}  // namespace torch_on_sim
