#include "plain/operand.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <utility>

#include "module.h"
#include "plain/arguments.h"
#include "status.h"

namespace collops::bindings {
namespace {

constexpr size_t kLongestName = 23;  // characters of a type's name that fit into a first signal

py::object OfModule(const char* module, const char* name) {
  return py::module_::import(module).attr(name);
}

std::string AsList(const Rows& sizes) {
  return Repr(py::list(ToTuple(sizes)));
}

void ReadSizesOf(Operand* operand) {
  const Shape& shape = operand->tensor.view.desc.shape;
  const bool is_whole = shape.num_dims <= kMaxDims && operand->problem.ok();
  if (is_whole || operand->made_by == Operand::kOther) {
    operand->sizes.assign(shape.dims, shape.dims + std::min(shape.num_dims, kMaxDims));
    return;
  }
  operand->sizes.clear();
  for (const py::handle size : operand->object.attr("shape")) {
    operand->sizes.push_back(size.cast<int64_t>());
  }
}

// A tensor of a library; false if it is of none.
bool FindLibrary(py::handle value, Operand::Library* library) {
  if (py::isinstance<py::array>(value)) {
    *library = Operand::kNumpy;
  } else if (IsTorchTensor(value)) {
    *library = Operand::kTorch;
  } else if (OfModule("collops.cuda_memory", "is_cupy")(value).cast<bool>()) {
    *library = Operand::kCupy;
  } else {
    return false;
  }
  return true;
}

void Read(const TensorName& name, Operand* operand, CallStream* stream) {
  operand->problem = ToTensor(operand->object, name, &operand->tensor, stream);
  const bool may_be_copied =
      operand->made_by == Operand::kTorch && operand->tensor.view.desc.dtype != DType::kUndefined;
  if (!may_be_copied) ThrowIfError(operand->problem);
  ReadSizesOf(operand);
}

// A tensor of a GPU that is of none of the three libraries.
void ReadOther(const TensorName& name, Operand* operand, CallStream* stream) {
  operand->made_by = Operand::kOther;
  Read(name, operand, stream);
  const TensorView& view = operand->tensor.view;
  if (view.desc.shape.num_dims > kMaxDims) {
    Throw(ERROR_INVALID_TENSOR_DIM_NUM, ToString(name), " has ", view.desc.shape.num_dims,
          " dims; of a tensor on a GPU at most 8 are taken");
  }
  if (view.desc.dtype == DType::kUndefined) {
    Throw(ERROR_INVALID_TENSOR_INI_MATCH, ToString(name), " on ", ToString(view.device),
          " has elements of a type that is not supported: pass a torch tensor");
  }
}

// The name by which the ranks compare an element type that the core has no number for, and its
// bytes.
struct ElementName {
  std::string name;
  int64_t bytes = 0;
};

ElementName DescribeElement(const TensorName& name, const Operand& x, const py::object& dtype) {
  ElementName element;
  element.bytes = dtype.attr("itemsize").cast<int64_t>();
  element.name = py::str(dtype);  // contains the fields of a structured type, and byte orders
  const std::string torch = "torch.";
  if (x.made_by == Operand::kTorch && element.name.compare(0, torch.size(), torch) == 0) {
    element.name.erase(0, torch.size());
  }
  if (x.made_by != Operand::kTorch && dtype.attr("hasobject").cast<bool>()) {
    Throw(ERROR_INVALID_TENSOR_INI_MATCH, ToString(name), ": elements of type ", element.name,
          " are references and cannot be sent");
  }
  if (element.name.size() > kLongestName) {
    const auto digest = OfModule("zlib", "crc32")(py::bytes(element.name));
    element.name =
        Concat(element.name.substr(0, 12), ".. ", std::string(py::str("{:08x}").format(digest)));
  }
  return element;
}

// Looked up in every call with such a type.
const ElementName& ElementOf(const TensorName& name, const Operand& x) {
  static auto* const numbers = new py::dict;  // of dtypes; never destroyed, guarded by the GIL
  static auto* const known = new std::vector<std::unique_ptr<ElementName>>;
  const py::object dtype = x.object.attr("dtype");
  if (!numbers->contains(dtype)) {
    known->push_back(std::make_unique<ElementName>(DescribeElement(name, x, dtype)));
    (*numbers)[dtype] = known->size() - 1;
  }
  return *(*known)[(*numbers)[dtype].cast<size_t>()];
}

// Raises an error for a tensor that would have to be copied, which none but a library can.
void RefuseCopy(const TensorName& name, const Operand& tensor) {
  if (tensor.made_by != Operand::kOther) return;
  Throw(ERROR_INVALID_TENSOR_ADDR, ToString(name), ", a ", TypeNameOf(tensor.object), " on ",
        ToString(tensor.tensor.view.device),
        ", would have to be copied into another order, which works for tensors of torch and CuPy "
        "only: pass one of those");
}

std::string KindOf(const Operand& x) {
  const TensorView& view = x.tensor.view;
  if (x.made_by == Operand::kOther) {
    return Concat(ToString(view.device), "'s ", Name(view.desc.dtype));
  }
  const std::string dtype = py::str(x.object.attr("dtype"));
  if (x.made_by == Operand::kTorch) return dtype;
  return Concat(x.made_by == Operand::kCupy ? "CuPy" : "numpy", "'s ", dtype);
}

void CheckSameKind(const TensorName& list, const Operand& first, const Operand& tensor, size_t i) {
  const bool is_like = tensor.made_by == first.made_by &&
                       (first.made_by == Operand::kOther
                            ? KindOf(tensor) == KindOf(first)
                            : tensor.object.attr("dtype").equal(first.object.attr("dtype")));
  if (!is_like) {
    Throw(ERROR_INVALID_TENSOR_INI_MATCH, ToString(list), "[", i, "] must be ", KindOf(first),
          " as ", list.label, "[0], got ", KindOf(tensor));
  }
}

// Blocks may differ in `dim` alone.
void CheckBlock(const char* method, const Operand& first, const Operand& block, size_t i, int dim) {
  CheckSameKind({method, "x"}, first, block, i);
  Rows sizes = block.sizes;
  if (sizes.size() == first.sizes.size()) {
    sizes[static_cast<size_t>(dim)] = first.sizes[static_cast<size_t>(dim)];
  }
  if (sizes == first.sizes) return;
  const auto shown = [](const Rows& rows) {
    return ToString(Shape::From(rows.data(), static_cast<int>(rows.size())));
  };
  Throw(ERROR_INVALID_TENSOR_DIM, method, ": x[", i, "] has shape ", shown(block.sizes), ", x[0] ",
        shown(first.sizes), ": blocks may differ in dim ", dim, " alone");
}

// Calls `copy` with the part of `flat`, in its shape, of each block.
template <typename Copy>
void ForEachBlock(const std::vector<py::object>& blocks, const py::object& flat, const Copy& copy) {
  int64_t begin = 0;
  for (const py::object& block : blocks) {
    const py::tuple shape = block.attr("shape");
    int64_t elements = 1;
    for (const py::handle size : shape) elements *= size.cast<int64_t>();
    copy(block, flat[py::slice(begin, begin + elements, 1)].attr("reshape")(shape));
    begin += elements;
  }
}

// The blocks, copied one after the other into one tensor of that shape.
Operand PackedAs(const Rows& sizes, const char* method, const Operand& like,
                 const std::vector<py::object>& blocks, CallStream* stream) {
  int64_t elements = 1;
  for (const int64_t length : sizes) elements *= length;
  const py::object flat = MakeLike(method, like.object, {elements});
  ForEachBlock(blocks, flat, [](const py::object& block, const py::object& part) {
    part[py::ellipsis()] = block;
  });
  Operand packed = ReadInput({method, "x"}, flat, stream);
  packed.tensor.view.desc.shape = Shape::From(sizes.data(), static_cast<int>(sizes.size()));
  packed.is_packed = true;
  return packed;
}

}  // namespace

void CheckLikeFirst(const TensorName& list, const Operand& first, const Operand& tensor, size_t i) {
  CheckSameKind(list, first, tensor, i);
  if (tensor.sizes == first.sizes) return;
  Throw(ERROR_INVALID_TENSOR_DIM, ToString(list), "[", i, "] must have shape ", AsList(first.sizes),
        " as ", list.label, "[0], got ", AsList(tensor.sizes));
}

std::vector<py::object> TensorsOf(const char* method, const py::object& list) {
  std::vector<py::object> tensors;
  for (const py::handle item : list) tensors.push_back(py::reinterpret_borrow<py::object>(item));
  if (tensors.empty()) {
    Throw(ERROR_INVALID_PARAM, method,
          ": x is an empty list: for no rows pass np.empty((0, ...), dtype)");
  }
  PyObject* const first = tensors[0].ptr();
  if (PyLong_Check(first) != 0 || PyFloat_Check(first) != 0 || PyComplex_Check(first) != 0 ||
      IsList(first)) {
    Throw(ERROR_INVALID_PARAM, method,
          ": x is a list of numbers: pass np.array(x, dtype) (a list means several tensors)");
  }
  return tensors;
}

Operand ReadInput(const TensorName& name, const py::object& value, CallStream* stream) {
  Operand operand;
  operand.object = value;
  if (!FindLibrary(value, &operand.made_by)) {
    if (IsOnCuda(value)) {
      ReadOther(name, &operand, stream);
      return operand;
    }
    operand.object = OfModule("collops.tensors", "from_dlpack")(name.operation, name.label, value);
  }
  Read(name, &operand, stream);
  return operand;
}

Operand ReadOutput(const TensorName& name, const py::object& value, CallStream* stream) {
  Operand operand;
  operand.object = value;
  if (FindLibrary(value, &operand.made_by)) {
    Read(name, &operand, stream);
  } else if (IsOnCuda(value)) {
    ReadOther(name, &operand, stream);
  } else {
    Throw(ERROR_INVALID_PARAM, ToString(name), " must be a numpy array or a torch tensor, got ",
          TypeNameOf(value));
  }
  return operand;
}

Operand ReadOutput(const TensorName& name, const py::object& value, const Rows& shape,
                   CallStream* stream) {
  Operand operand = ReadOutput(name, value, stream);
  if (operand.sizes != shape) {
    Throw(ERROR_INVALID_TENSOR_DIM, ToString(name), " must have shape ", AsList(shape), ", got ",
          AsList(operand.sizes));
  }
  return operand;
}

void NameElements(const TensorName& name, const Operand& x, RowShape* shape) {
  if (x.tensor.view.desc.dtype != DType::kUndefined) return;
  const ElementName& element = ElementOf(name, x);
  shape->type = element.name;
  shape->unit = element.bytes;
}

void MoveAsBytes(Operand* tensor) {
  TensorView& view = tensor->tensor.view;
  view.desc.dtype = DType::kUInt8;
  view.foreign_endian = false;
  tensor->tensor.numel *= tensor->object.attr("dtype").attr("itemsize").cast<int64_t>();
  view.desc.shape = Shape{tensor->tensor.numel};
}

void CheckSameElements(const char* method, const Operand& x, const Operand& out) {
  const py::object want = x.object.attr("dtype");
  const py::object got = out.object.attr("dtype");
  if (want.equal(got)) return;
  Throw(ERROR_INVALID_TENSOR_INI_MATCH, method, ": out must be ", std::string(py::str(want)),
        " as x, got ", std::string(py::str(got)));
}

Operand InOrder(const TensorName& name, const Operand& x, CallStream* stream) {
  if (x.tensor.view.contiguous) return x;
  RefuseCopy(name, x);
  Operand copy;
  copy.made_by = x.made_by;
  if (x.made_by == Operand::kNumpy) {
    copy.object = x.object.attr("copy")("C");
  } else if (x.made_by == Operand::kTorch) {
    copy.object = x.object.attr("contiguous")();
  } else {
    copy.object = OfModule("collops.cuda_memory", "contiguous_of_cupy")(x.object);
  }
  Read(name, &copy, stream);
  return copy;
}

Operand StagingFor(const TensorName& name, const Operand& out, CallStream* stream) {
  ThrowIfError(out.problem);
  ThrowIfError(CheckWritable(out.tensor, name.operation, name.label));
  RefuseCopy(name, out);
  Operand staging;
  staging.made_by = out.made_by;
  staging.object = MakeLike(name.operation, out.object, {out.tensor.numel});
  Read(name, &staging, stream);
  return staging;
}

Operand Joined(const std::vector<Operand>& blocks, PlainCall* call, CallStream* stream) {
  const auto along = static_cast<size_t>(call->x.dim);
  std::vector<py::object> parts;
  Rows rows;
  for (size_t i = 0; i < blocks.size(); ++i) {
    CheckBlock(call->name(), blocks[0], blocks[i], i, call->x.dim);
    rows.push_back(blocks[i].sizes[along]);
    parts.push_back(blocks[i].object);
  }
  RefuseCopy({call->name(), "x"}, blocks[0]);
  call->x.sizes[along] = SumOf(rows);
  call->sizes = std::move(rows);
  return PackedAs(call->x.sizes, call->name(), blocks[0], parts, stream);
}

Operand Packed(const PlainCall& call, const Operand& x, const Rows& rows, CallStream* stream) {
  RefuseCopy({call.name(), "x"}, x);
  return PackedAs(call.x.sizes, call.name(), x, BlocksOf(x.object, rows, call.x.dim), stream);
}

std::vector<py::object> BlocksOf(const py::object& whole, const Rows& rows, int dim) {
  std::vector<py::object> blocks;
  int64_t begin = 0;
  for (const int64_t size : rows) {
    py::tuple index(dim + 1);
    for (int i = 0; i < dim; ++i) index[i] = py::slice(std::nullopt, std::nullopt, std::nullopt);
    index[dim] = py::slice(begin, begin + size, 1);
    blocks.push_back(whole[index]);
    begin += size;
  }
  return blocks;
}

void UnpackBlocks(const py::object& flat, const std::vector<py::object>& blocks) {
  ForEachBlock(blocks, flat, [](const py::object& block, const py::object& part) {
    block[py::ellipsis()] = part;
  });
}

}  // namespace collops::bindings
