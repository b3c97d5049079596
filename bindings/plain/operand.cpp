#include "plain/operand.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <utility>

#include "plain/arguments.h"
#include "plain/started.h"
#include "status.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

constexpr size_t kLongestName = 23;  // characters of a type's name that fit into a first signal

py::object Imported(const char* module, const char* name) {
  return py::module_::import(module).attr(name);
}

py::tuple AsTuple(const Rows& sizes) {
  py::tuple tuple(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) tuple[i] = sizes[i];
  return tuple;
}

std::string AsList(const Rows& sizes) {
  return Repr(py::list(AsTuple(sizes)));
}

void ReadShape(Operand* operand) {
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

int64_t ProductOf(const Rows& sizes, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= sizes[i];
  return product;
}

// A tensor of a library; false if it is of none.
bool FindLibrary(py::handle value, Operand::Library* library) {
  if (py::isinstance<py::array>(value)) {
    *library = Operand::kNumpy;
  } else if (IsTorchTensor(value)) {
    *library = Operand::kTorch;
  } else if (Imported("collops.cuda_memory", "is_cupy")(value).cast<bool>()) {
    *library = Operand::kCupy;
  } else {
    return false;
  }
  return true;
}

void ReadTensor(const OperandName& name, Operand* operand, CallStream* stream) {
  const TensorName words{name.method, name.label, -1, nullptr};
  operand->problem = ToTensor(operand->object, words, &operand->tensor, stream);
  const bool may_be_copied =
      operand->made_by == Operand::kTorch && operand->tensor.view.desc.dtype != DType::kUndefined;
  if (!may_be_copied) ThrowIfError(operand->problem);
  ReadShape(operand);
}

// A tensor of a GPU that is of none of the three libraries.
void ReadOther(const OperandName& name, Operand* operand, CallStream* stream) {
  operand->made_by = Operand::kOther;
  ReadTensor(name, operand, stream);
  const TensorView& view = operand->tensor.view;
  if (view.desc.shape.num_dims > kMaxDims) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_DIM_NUM, name.text(), " has ", view.desc.shape.num_dims,
                       " dims; of a tensor on a GPU at most 8 are taken"));
  }
  if (view.desc.dtype == DType::kUndefined) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_INI_MATCH, name.text(), " on ", ToString(view.device),
                       " has elements of a type that is not supported: pass a torch tensor"));
  }
}

// The name by which the ranks compare an element type that the core has no number for, and its
// bytes.
struct ElementName {
  std::string name;
  int64_t bytes = 0;
};

ElementName DescribeElement(const OperandName& name, const Operand& x, const py::object& dtype) {
  ElementName element;
  element.bytes = dtype.attr("itemsize").cast<int64_t>();
  element.name = py::str(dtype);  // contains the fields of a structured type, and byte orders
  const std::string torch = "torch.";
  if (x.made_by == Operand::kTorch && element.name.compare(0, torch.size(), torch) == 0) {
    element.name.erase(0, torch.size());
  }
  if (x.made_by != Operand::kTorch && dtype.attr("hasobject").cast<bool>()) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_INI_MATCH, name.text(), ": elements of type ",
                       element.name, " are references and cannot be sent"));
  }
  if (element.name.size() > kLongestName) {
    const auto digest = Imported("zlib", "crc32")(py::bytes(element.name));
    element.name =
        Concat(element.name.substr(0, 12), ".. ", std::string(py::str("{:08x}").format(digest)));
  }
  return element;
}

// Looked up in every call with such a type.
const ElementName& ElementOf(const OperandName& name, const Operand& x) {
  static auto* const numbers = new py::dict;  // of dtypes; never destroyed, guarded by the GIL
  static auto* const known = new std::vector<std::unique_ptr<ElementName>>;
  const py::object dtype = x.object.attr("dtype");
  if (!numbers->contains(dtype)) {
    known->push_back(std::make_unique<ElementName>(DescribeElement(name, x, dtype)));
    (*numbers)[dtype] = known->size() - 1;
  }
  return *(*known)[(*numbers)[dtype].cast<size_t>()];
}

// The ways of making the results of one kept call, one per library.
struct Makers {
  py::object of[Operand::kOther + 1];
};

int64_t ElementsOf(const py::object& tensor) {
  int64_t elements = 1;
  for (const py::handle size : tensor.attr("shape")) elements *= size.cast<int64_t>();
  return elements;
}

}  // namespace

// Whether the ranks' blocks along x's dim lie one after the other in row-major memory.
bool IsInOrder(const RowShape& x, int rank_size) {
  return x.dim == 0 || rank_size == 1 || ProductOf(x.sizes, 0, static_cast<size_t>(x.dim)) == 1;
}

std::string ItemOf(const char* label, size_t i) {
  return Concat(label, "[", i, "]");
}

std::vector<py::object> TensorsOf(const char* method, const py::object& list) {
  std::vector<py::object> tensors;
  for (const py::handle item : list) tensors.push_back(py::reinterpret_borrow<py::object>(item));
  if (tensors.empty()) {
    ThrowIfError(Error(ERROR_INVALID_PARAM, method, ": x is an empty list: for no rows pass ",
                       "np.empty((0, ...), dtype)"));
  }
  PyObject* const first = tensors[0].ptr();
  if (PyLong_Check(first) != 0 || PyFloat_Check(first) != 0 || PyComplex_Check(first) != 0 ||
      IsList(first)) {
    ThrowIfError(Error(ERROR_INVALID_PARAM, method, ": x is a list of numbers: pass ",
                       "np.array(x, dtype) (a list means several tensors)"));
  }
  return tensors;
}

Operand ReadInput(const OperandName& name, const py::object& value, CallStream* stream) {
  Operand operand;
  operand.object = value;
  if (!FindLibrary(value, &operand.made_by)) {
    if (IsOnCuda(value)) {
      ReadOther(name, &operand, stream);
      return operand;
    }
    operand.object = Imported("collops.tensors", "from_dlpack")(name.method, name.label, value);
  }
  ReadTensor(name, &operand, stream);
  return operand;
}

Operand ReadOutput(const OperandName& name, const py::object& value, CallStream* stream) {
  Operand operand;
  operand.object = value;
  if (FindLibrary(value, &operand.made_by)) {
    ReadTensor(name, &operand, stream);
  } else if (IsOnCuda(value)) {
    ReadOther(name, &operand, stream);
  } else {
    ThrowIfError(Error(ERROR_INVALID_PARAM, name.text(),
                       " must be a numpy array or a torch tensor, got ", TypeNameOf(value)));
  }
  return operand;
}

Operand ReadOutput(const OperandName& name, const py::object& value, const Rows& shape,
                   CallStream* stream) {
  Operand operand = ReadOutput(name, value, stream);
  if (operand.sizes != shape) {
    ThrowIfError(Error(ERROR_INVALID_TENSOR_DIM, name.text(), " must have shape ", AsList(shape),
                       ", got ", AsList(operand.sizes)));
  }
  return operand;
}

void NameElements(const OperandName& name, const Operand& x, RowShape* shape) {
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
  ThrowIfError(Error(ERROR_INVALID_TENSOR_INI_MATCH, method, ": out must be ",
                     std::string(py::str(want)), " as x, got ", std::string(py::str(got))));
}

py::object MakeLike(const char* method, const Operand& like, const Rows& shape) {
  if (like.made_by == Operand::kNumpy) {
    try {
      return py::array(like.object.cast<py::array>().dtype(), shape);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;  // else the next line says what is wrong
    }
  }
  return Imported("collops.tensors", "empty_like_kind")(method, like.object, AsTuple(shape));
}

py::object MakeResult(const char* method, const Operand& like, PlainCalls::Kept* kept) {
  if (like.made_by == Operand::kNumpy) return MakeLike(method, like, kept->result);
  if (kept->beside == nullptr) kept->beside = DestroyedWithGil(std::make_unique<Makers>());
  py::object& make = static_cast<Makers*>(kept->beside.get())->of[like.made_by];
  if (make) {
    PyObject* const made = PyObject_CallNoArgs(py::object(make).ptr());
    if (made != nullptr) return py::reinterpret_steal<py::object>(made);
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw py::error_already_set();
    PyErr_Clear();  // the next line says what is wrong
  }
  py::object result = MakeLike(method, like, kept->result);
  const py::object maker = Imported("collops.tensors", "maker")(result);
  if (!maker.is_none()) make = maker;
  return result;
}

void RefuseCopy(const OperandName& name, const Operand& tensor) {
  ThrowIfError(Error(ERROR_INVALID_TENSOR_ADDR, name.text(), ", a ", TypeNameOf(tensor.object),
                     " on ", ToString(tensor.tensor.view.device),
                     ", would have to be copied into another order, which works for tensors of "
                     "torch and CuPy only: pass one of those"));
  throw py::error_already_set();  // not reached
}

Operand InOrder(const OperandName& name, const Operand& x, CallStream* stream) {
  if (x.tensor.view.contiguous) return x;
  if (x.made_by == Operand::kOther) RefuseCopy(name, x);
  Operand copy;
  copy.made_by = x.made_by;
  if (x.made_by == Operand::kNumpy) {
    copy.object = x.object.attr("copy")("C");
  } else if (x.made_by == Operand::kTorch) {
    copy.object = x.object.attr("contiguous")();
  } else {
    copy.object = Imported("collops.cuda_memory", "contiguous_of_cupy")(x.object);
  }
  ReadTensor(name, &copy, stream);
  return copy;
}

Operand StagingFor(const OperandName& name, const Operand& out, CallStream* stream) {
  ThrowIfError(out.problem);
  ThrowIfError(CheckWritable(out.tensor, name.method, name.label));
  if (out.made_by == Operand::kOther) RefuseCopy(name, out);
  Operand staging;
  staging.made_by = out.made_by;
  staging.object = MakeLike(name.method, out, {out.tensor.numel});
  ReadTensor(name, &staging, stream);
  return staging;
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

void PackBlocks(const std::vector<py::object>& blocks, const py::object& flat) {
  int64_t begin = 0;
  for (const py::object& block : blocks) {
    const int64_t end = begin + ElementsOf(block);
    const py::object shape = block.attr("shape");
    flat[py::slice(begin, end, 1)].attr("reshape")(shape)[py::ellipsis()] = block;
    begin = end;
  }
}

void UnpackBlocks(const py::object& flat, const std::vector<py::object>& blocks) {
  int64_t begin = 0;
  for (const py::object& block : blocks) {
    const int64_t end = begin + ElementsOf(block);
    block[py::ellipsis()] = flat[py::slice(begin, end, 1)].attr("reshape")(block.attr("shape"));
    begin = end;
  }
}

}  // namespace collops::bindings
