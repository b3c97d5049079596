#include "collops/operators/plain/plain_tensors.h"

#include <sys/mman.h>

#include <cstdlib>
#include <memory>

#include "collops/kernels/reduce/reduce.h"

namespace collops {
namespace {

int64_t Bytes(const PlainTensor& tensor) {
  return tensor.numel * SizeOf(tensor.view.desc.dtype);
}

// Where a tensor must be.
std::string WhereTo(Device device) {
  if (device.kind == DeviceKind::kCpu) return "this backend moves CPU tensors: .cpu()";
  if (device.index < 0) device.index = 0;
  return Concat("the communicator's tensors are on ", ToString(device), ": .to(\"",
                ToString(device), "\")");
}

}  // namespace

Status CheckWhole(const PlainTensor& tensor, const char* method, const char* label, int64_t count,
                  const Device& device) {
  const TensorView& view = tensor.view;
  COLLOPS_CHECK_ARG(view.device.kind != DeviceKind::kMeta, ERROR_INVALID_TENSOR_ADDR, method, ": ",
                    label, " is a meta tensor, which has no values: create a real one, e.g. by ",
                    "torch.empty_like(tensor, device=\"", ToString(Device{device.kind, 0}),
                    "\"), and fill it");
  COLLOPS_CHECK_ARG(IsOn(device, view.device), ERROR_INVALID_TENSOR_ADDR, method, ": ", label,
                    " is on ", ToString(view.device), "; ", WhereTo(device));
  COLLOPS_CHECK_ARG(view.contiguous, ERROR_INVALID_TENSOR_ADDR, method, ": ", label,
                    " is not contiguous: pass .contiguous() (numpy: np.ascontiguousarray)");
  COLLOPS_CHECK_ARG(!view.foreign_endian, ERROR_INVALID_TENSOR_ADDR, method, ": ", label,
                    " is not in this machine's byte order: .astype(dtype.newbyteorder(\"=\"))");
  COLLOPS_CHECK_ARG(tensor.numel == count, ERROR_INVALID_TENSOR_DIM, method, ": ", label, " has ",
                    tensor.numel, " elements, the sizes of the call sum to ", count);
  COLLOPS_CHECK_ARG(view.data != nullptr || count == 0, ERROR_INVALID_TENSOR_ADDR, method, ": ",
                    label, " has no address: pass an array, not a description");
  return Ok();
}

Status CheckWritable(const PlainTensor& tensor, const char* method, const char* label) {
  COLLOPS_CHECK_ARG(!tensor.view.read_only, ERROR_INVALID_TENSOR_ADDR, method, ": ", label,
                    " is read-only: pass a writable one");
  return Ok();
}

Status CheckPair(const PlainTensors& tensors, const char* method, int64_t x_count,
                 int64_t out_count, const Device& device) {
  COLLOPS_RETURN_IF_ERROR(CheckWhole(tensors.x, method, "x", x_count, device));
  COLLOPS_RETURN_IF_ERROR(CheckWhole(tensors.out, method, "out", out_count, device));
  const TensorDesc& want = tensors.x.view.desc;
  const TensorDesc& got = tensors.out.view.desc;
  COLLOPS_CHECK_ARG(got.dtype == want.dtype, ERROR_INVALID_TENSOR_INI_MATCH, method,
                    ": out must be ", NameOfType(want), " as x, got ", NameOfType(got));
  return CheckWritable(tensors.out, method, "out");
}

Status CheckApart(const PlainTensors& tensors, const char* method, std::optional<int64_t> offset,
                  const char* exception) {
  // As numbers, because the address of an empty tensor may be null.
  const auto x = reinterpret_cast<uintptr_t>(tensors.x.view.data);
  const auto out = reinterpret_cast<uintptr_t>(tensors.out.view.data);
  const int64_t element = SizeOf(tensors.x.view.desc.dtype);
  if (offset && out == x + static_cast<uintptr_t>(*offset * element)) return Ok();
  COLLOPS_CHECK_ARG(
      !Overlap(tensors.x.view.data, Bytes(tensors.x), tensors.out.view.data, Bytes(tensors.out)),
      ERROR_INVALID_TENSOR_ADDR, method, ": out overlaps x in memory: give it memory of its own",
      exception);
  return Ok();
}

void* PlainScratch(uint64_t bytes) {
  constexpr uint64_t kHugePage = uint64_t{1} << 21;  // without such pages it is only slower
  thread_local std::unique_ptr<void, void (*)(void*)> memory(nullptr, &std::free);
  thread_local uint64_t size = 0;
  if (bytes <= size) return memory.get();
  memory.reset();  // first: there may not be room for both
  size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  memory.reset(std::aligned_alloc(kHugePage, size));
  if (memory == nullptr) size = 0;
  static_cast<void>(madvise(memory.get(), size, MADV_HUGEPAGE));
  return memory.get();
}

void AddSizeOf(const Communicator& communicator, const PlainTensor& x, CollectiveTerms* terms) {
  if (!communicator.compares_shapes()) {
    terms->elements = x.numel;
    return;
  }
  Shape& shape = terms->x_shape;
  shape = x.view.desc.shape;
  if (shape.num_dims <= kMaxDims) return;
  shape.num_dims = kMaxDims;
  int64_t others = 1;
  for (int i = 0; i < kMaxDims - 1; ++i) others *= shape.dims[i];
  shape.dims[kMaxDims - 1] = others == 0 ? 0 : x.numel / others;
}

Status CheckReducible(const TensorDesc& x, ReduceOp op, const char* method) {
  const DType dtype = x.dtype;
  COLLOPS_CHECK_ARG(dtype != DType::kUndefined, ERROR_INVALID_TENSOR_INI_MATCH, method,
                    ": elements of type ", NameOfType(x), " cannot be reduced");
  // Of truth values there is what stays within 0 and 1, of complex numbers what is the same for
  // both parts.
  const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  const bool is_meant =
      dtype == DType::kBool ? !is_sum && op != ReduceOp::kProd : !IsComplex(dtype) || is_sum;
  COLLOPS_CHECK_ARG(is_meant && kernels::CanReduce(ReducedAs(dtype), op),
                    ERROR_INVALID_TENSOR_INI_MATCH, method, ": there is no ", Name(op), " of ",
                    Name(dtype), ": convert x to ",
                    IsBitwise(op) ? "an integer type" : "a type of real numbers");
  return Ok();
}

}  // namespace collops
