#include "plain_call.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kernels/reduce/reduce.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

int64_t Bytes(const Tensor& tensor) {
  return tensor.numel * SizeOf(tensor.view.desc.dtype);
}

}  // namespace

const char* LastingName(const std::string& name) {
  // Never destroyed: calls may still run while static objects go. Guarded by the GIL.
  static auto* const names = new std::set<std::string>;
  return names->insert(name).first->c_str();
}

const char* MethodOf(const std::string& operation) {
  const size_t end = std::min(operation.find(' '), operation.size());
  std::string method;
  for (size_t i = 0; i < end; ++i) {
    const char c = operation[i];
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && i > 0 && c != 'V') method += '_';
    method += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return LastingName(method + operation.substr(end));
}

Blocks::Blocks(const std::string& operation, std::vector<int64_t> counts, int dim, int num_tensors,
               std::string type, const std::vector<int64_t>& shape, int root)
    : operation_(LastingName(operation)),
      counts_(std::move(counts)),
      dim_(dim),
      num_tensors_(num_tensors),
      type_(std::move(type)),
      root_(root) {
  for (const int64_t count : counts_) {
    displs_.push_back(total_);
    total_ += count;
  }
  shape_ = Shape::From(shape.data(), static_cast<int>(shape.size()));
}

void Blocks::AgreeOn(const char* method, const char* counts_name, const char* displs_name,
                     CollectiveTerms terms, Agreement* agreement) const {
  if (!type_.empty()) terms.dtype = type_.c_str();
  terms.num_tensors = num_tensors_;
  terms.dim = dim_;
  terms.root = root_;
  AddTerms(terms, agreement);
  agreement->EqualList(counts_name, counts(), size())
      .EqualList(displs_name, displs(), size())
      .InPlainWords(method, row_elements_);
}

Status CheckWhole(const Tensor& tensor, const TensorName& name, int64_t count) {
  const TensorView& view = tensor.view;
  CHECK_ARG(view.device.kind != DeviceKind::kMeta, ERROR_INVALID_TENSOR_ADDR, ToString(name),
            " is a meta tensor, which has no values: make a real one, as by ",
            "torch.empty_like(tensor, device=\"cpu\"), and fill it");
  CHECK_ARG(view.device.kind == DeviceKind::kCpu, ERROR_INVALID_TENSOR_ADDR, ToString(name),
            " is on ", ToString(view.device), "; this backend moves CPU tensors: .cpu()");
  CHECK_ARG(view.contiguous, ERROR_INVALID_TENSOR_ADDR, ToString(name),
            " is not contiguous: pass .contiguous() (numpy: np.ascontiguousarray)");
  CHECK_ARG(!view.foreign_endian, ERROR_INVALID_TENSOR_ADDR, ToString(name),
            " is not in this machine's byte order: .astype(dtype.newbyteorder(\"=\"))");
  CHECK_ARG(tensor.numel == count, ERROR_INVALID_TENSOR_DIM, ToString(name), " has ", tensor.numel,
            " elements, the call's sizes make ", count);
  CHECK_ARG(view.data != nullptr || count == 0, ERROR_INVALID_TENSOR_ADDR, ToString(name),
            " has no address: pass an array, not a description");
  return Ok();
}

Status CheckWritable(const Tensor& tensor, const TensorName& name) {
  CHECK_ARG(!tensor.view.read_only, ERROR_INVALID_TENSOR_ADDR, ToString(name),
            " is read-only: pass a writable one");
  return Ok();
}

Status ToPlainTensors(py::handle x, py::handle out, const char* operation, int64_t x_count,
                      int64_t out_count, PlainTensors* tensors) {
  const TensorName x_name{operation, "x", -1, nullptr};
  const TensorName out_name{operation, "out", -1, nullptr};
  RETURN_IF_ERROR(ToTensor(x, x_name, &tensors->x));
  RETURN_IF_ERROR(ToTensor(out, out_name, &tensors->out));
  RETURN_IF_ERROR(CheckWhole(tensors->x, x_name, x_count));
  RETURN_IF_ERROR(CheckWhole(tensors->out, out_name, out_count));
  const DType want = tensors->x.view.desc.dtype;
  const DType got = tensors->out.view.desc.dtype;
  CHECK_ARG(got == want, ERROR_INVALID_TENSOR_INI_MATCH, ToString(out_name), " must be ",
            Name(want), " as x, got ", Name(got));
  return CheckWritable(tensors->out, out_name);
}

Status CheckApart(const PlainTensors& tensors, const char* operation, int64_t own_begin,
                  const char* exception) {
  const int64_t element = SizeOf(tensors.x.view.desc.dtype);
  const auto* own = static_cast<const char*>(tensors.out.view.data) + own_begin * element;
  if (own_begin >= 0 && tensors.x.view.data == own) return Ok();
  CHECK_ARG(
      !Overlap(tensors.x.view.data, Bytes(tensors.x), tensors.out.view.data, Bytes(tensors.out)),
      ERROR_INVALID_TENSOR_ADDR, operation, ": out overlaps x in memory: give it memory of its own",
      exception);
  return Ok();
}

Shape ComparedShape(const Tensor& x) {
  Shape shape = x.view.desc.shape;
  if (shape.num_dims <= kMaxDims) return shape;
  shape.num_dims = kMaxDims;
  int64_t others = 1;
  for (int i = 0; i < kMaxDims - 1; ++i) others *= shape.dims[i];
  shape.dims[kMaxDims - 1] = others == 0 ? 0 : x.numel / others;
  return shape;
}

Status CheckReducible(DType dtype, ReduceOp op, const char* operation) {
  CHECK_ARG(kernels::CanReduce(dtype, op), ERROR_INVALID_TENSOR_INI_MATCH, operation,
            ": there is no ", Name(op), " of ", Name(dtype), ": convert x to ",
            op == ReduceOp::kAvg ? "a floating type" : "a type of real numbers");
  return Ok();
}

}  // namespace collops::bindings
