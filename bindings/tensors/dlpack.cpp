#include "tensors/dlpack.h"

#include <pybind11/numpy.h>

#include <utility>

#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

constexpr const char* kCapsule = "dltensor";
constexpr const char* kVersionedCapsule = "dltensor_versioned";

const dlpack::NamedType* FindType(const dlpack::Type& type) {
  for (const dlpack::NamedType& row : dlpack::kTypes) {
    if (row.code == type.code && row.bits == type.bits) return &row;
  }
  return nullptr;
}

// Whether the elements lie in row-major order without gaps. A tensor without elements may have any
// strides; numpy's are 0.
bool IsContiguous(const dlpack::Tensor& tensor) {
  int64_t step = 1;
  bool in_order = true;
  for (int i = tensor.num_dims - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides != nullptr) in_order &= tensor.strides[i] == step;
    step *= tensor.shape[i];
  }
  return in_order;
}

std::byte* Address(const dlpack::Tensor& source) {
  return static_cast<std::byte*>(source.data) + source.byte_offset;
}

std::string NameOfDevice(const dlpack::Device& device) {
  if (device.type == dlpack::kCuda) return Concat("cuda:", device.index);
  if (device.type == dlpack::kRocm) return Concat("rocm:", device.index);
  return Concat("DLPack device ", device.type, ":", device.index);
}

// What __dlpack__() has returned. The capsule stays unconsumed in DLPack's sense: it owns the
// tensor and releases it.
struct Imported {
  py::object capsule;
  const dlpack::Tensor* tensor = nullptr;
  bool is_versioned = false;
  bool is_read_only = false;  // by its flag, which versioned ones have
  Device device;
};

Status CheckDevice(const dlpack::Device& said, const TensorName& name, Device* device) {
  COLLOPS_CHECK_ARG(
      dlpack::ToDevice(said, device), ERROR_INVALID_TENSOR_ADDR, ToString(name), " is on ",
      NameOfDevice(said),
      "; DLPack is read from memory of the CPU and of CUDA only: copy it to the CPU first");
  return Ok();
}

// Checked before __dlpack__() is called, which may wait for the device.
Status CheckSaidDevice(py::handle object, const TensorName& name, Device* device) {
  if (!py::hasattr(object, "__dlpack_device__")) return Ok();
  const auto said = py::tuple(object.attr("__dlpack_device__")());
  return CheckDevice({said[0].cast<int32_t>(), said[1].cast<int32_t>()}, name, device);
}

// Producers of DLPack before 1.0 do not accept max_version, and some accept no stream: then what
// they have on other streams than the legacy default one must be done.
py::object RequestCapsule(py::handle object, const py::dict& stream) {
  const py::object method = object.attr("__dlpack__");
  py::dict both = stream.attr("copy")();
  both["max_version"] = py::make_tuple(dlpack::kMajorVersion, 0);
  for (const py::dict& words : {both, stream}) {
    if (words.empty()) break;
    try {
      return method(**words);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
  }
  return method();
}

Status ReadCapsule(const TensorName& name, Imported* imported) {
  PyObject* const capsule = imported->capsule.ptr();
  imported->is_versioned = PyCapsule_IsValid(capsule, kVersionedCapsule) != 0;
  if (imported->is_versioned) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule, kVersionedCapsule));
    COLLOPS_CHECK_ARG(managed->major == dlpack::kMajorVersion, ERROR_INVALID_PARAM, ToString(name),
                      ": DLPack version ", managed->major, " is not supported, only 1");
    imported->tensor = &managed->tensor;
    imported->is_read_only = (managed->flags & dlpack::kReadOnly) != 0;
    return Ok();
  }
  COLLOPS_CHECK_ARG(PyCapsule_IsValid(capsule, kCapsule) != 0, ERROR_INVALID_PARAM, ToString(name),
                    ": its __dlpack__ returned no DLPack capsule");
  imported->tensor =
      &static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule, kCapsule))->tensor;
  return Ok();
}

// On CUDA the producer is told the call's stream, and orders its own work before that.
Status Import(py::handle object, const TensorName& name, CallStream* stream, Imported* imported) {
  Device said;
  try {
    COLLOPS_RETURN_IF_ERROR(CheckSaidDevice(object, name, &said));
    py::dict arguments;
    if (said.kind == DeviceKind::kCuda) {
      void* number = nullptr;
      stream->See(object, said);
      COLLOPS_RETURN_IF_ERROR(stream->Find(name.operation, &number));
      arguments["stream"] = reinterpret_cast<uintptr_t>(number);
    }
    imported->capsule = RequestCapsule(object, arguments);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return Error(ERROR_INVALID_PARAM, ToString(name), ": its __dlpack__ failed: ", ToString(error));
  } catch (py::cast_error&) {
    return Error(ERROR_INVALID_PARAM, ToString(name),
                 ": its __dlpack_device__ did not return two numbers");
  }
  COLLOPS_RETURN_IF_ERROR(ReadCapsule(name, imported));
  const dlpack::Tensor& tensor = *imported->tensor;
  COLLOPS_RETURN_IF_ERROR(CheckDevice(tensor.device, name, &imported->device));
  COLLOPS_CHECK_ARG(imported->device == said, ERROR_INVALID_PARAM, ToString(name),
                    ": its __dlpack__ gave ", "memory on ", ToString(imported->device),
                    ", but its __dlpack_device__ says ", ToString(said));
  COLLOPS_CHECK_ARG(tensor.type.lanes == 1, ERROR_INVALID_TENSOR_INI_MATCH, ToString(name),
                    ": its elements are vectors of ", tensor.type.lanes,
                    "; pass a tensor of numbers");
  return Ok();
}

bool HasDlpack(py::handle object) {
  return py::hasattr(object, "__dlpack__") && !PyType_Check(object.ptr());
}

// On the CPU libraries may rely on constant memory without a flag that says so. On CUDA the flag
// decides; a capsule without flags is writable, as CuPy's are, unless it is of JAX, whose arrays
// never change.
bool IsReadOnly(py::handle object, const Imported& imported) {
  if (imported.device.kind == DeviceKind::kCpu) return true;
  if (imported.is_versioned) return imported.is_read_only;
  return IsFrom(object, "jax") || IsFrom(object, "jaxlib");
}

// Lists and numbers, of which numpy makes an array.
bool IsOfNumbers(py::handle object) {
  return PyList_Check(object.ptr()) != 0 || PyTuple_Check(object.ptr()) != 0 ||
         PyLong_Check(object.ptr()) != 0 || PyFloat_Check(object.ptr()) != 0;
}

// A read-only numpy array on the tensor's memory, and the name of its type. If numpy has no such
// type, the array has unsigned numbers of the same size.
py::tuple FromDlpack(const py::object& object, const std::string& operation,
                     const std::string& label) {
  const TensorName name{operation.c_str(), label.c_str()};
  if (!HasDlpack(object)) {
    Throw(ERROR_INVALID_PARAM, ToString(name),
          " must be a numpy array, a torch tensor or an object with __dlpack__, got ",
          Py_TYPE(object.ptr())->tp_name,
          IsOfNumbers(object) ? ": np.array([...]) makes one of numbers" : "");
  }
  CallStream stream;
  Imported imported;
  ThrowIfError(Import(object, name, &stream, &imported));
  const dlpack::Tensor* const source = imported.tensor;
  if (imported.device.kind != DeviceKind::kCpu) {
    Throw(ERROR_INVALID_TENSOR_ADDR, ToString(name), " is on ", ToString(imported.device),
          ", and numpy reads memory of the CPU only");
  }
  const dlpack::NamedType* const type = FindType(source->type);
  if (type == nullptr) {
    Throw(ERROR_INVALID_TENSOR_INI_MATCH, ToString(name), ": DLPack's type ",
          int{source->type.code}, " of ", int{source->type.bits}, " bits is not supported");
  }
  const auto item = static_cast<py::ssize_t>(type->bits / 8);
  std::vector<py::ssize_t> shape(source->shape, source->shape + source->num_dims);
  std::vector<py::ssize_t> strides;
  if (source->strides != nullptr) {
    for (int i = 0; i < source->num_dims; ++i) strides.push_back(source->strides[i] * item);
  }
  py::array array(py::dtype(type->numpy_name), shape, strides, Address(*source), imported.capsule);
  array.attr("setflags")(py::arg("write") = false);
  return py::make_tuple(array, type->name);
}

// What an exported capsule points to, with what that points to.
template <typename Managed>
struct Exported {
  Managed managed = {};
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::shared_ptr<void> use;

  static void Release(Managed* managed) { delete static_cast<Exported*>(managed->context); }
};

// A consumer renames the capsule and releases the tensor itself.
template <typename Managed>
void DestroyCapsule(PyObject* capsule) {
  const char* const name = PyCapsule_GetName(capsule);
  const std::string own = std::is_same_v<Managed, dlpack::Managed> ? kCapsule : kVersionedCapsule;
  if (name == nullptr || own != name) return;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->release(managed);
}

template <typename Managed>
py::object MakeCapsule(const char* name, dlpack::Tensor tensor, const std::vector<int64_t>& shape,
                       std::shared_ptr<void> use) {
  auto exported = std::make_unique<Exported<Managed>>();
  exported->shape = shape;
  exported->strides.assign(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;) {
    exported->strides[dim - 1] = exported->strides[dim] * shape[dim];
  }
  exported->use = std::move(use);
  tensor.shape = exported->shape.data();
  tensor.strides = exported->strides.data();
  Managed& managed = exported->managed;
  managed.tensor = tensor;
  managed.context = exported.get();
  managed.release = &Exported<Managed>::Release;
  if constexpr (std::is_same_v<Managed, dlpack::ManagedVersioned>) {
    managed.major = dlpack::kMajorVersion;
  }
  PyObject* const capsule = PyCapsule_New(&managed, name, &DestroyCapsule<Managed>);
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(exported.release());  // the capsule's
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

// From a table that fills up.
DType dlpack::NumberOf(const Type& type) {
  constexpr size_t kCodes = 32;
  constexpr size_t kSizes = 17;
  static bool known[kCodes][kSizes] = {};
  static DType numbers[kCodes][kSizes] = {};
  const size_t size = type.bits / 8;
  if (type.code >= kCodes || size >= kSizes || type.bits % 8 != 0) return DType::kUndefined;
  if (!known[type.code][size]) {
    const NamedType* const row = FindType(type);
    numbers[type.code][size] = DType::kUndefined;
    if (row != nullptr) ParseDType(row->name, &numbers[type.code][size]);
    known[type.code][size] = true;
  }
  return numbers[type.code][size];
}

void dlpack::SetView(const Tensor& source, const collops::Device& device,
                     bindings::Tensor* tensor) {
  TensorView& view = tensor->view;
  view = TensorView();
  view.desc.dtype = NumberOf(source.type);
  view.data = Address(source);
  view.device = device;
  view.contiguous = IsContiguous(source);
  SetShape(source.shape, source.num_dims, tensor);
}

py::object dlpack::Export(void* data, Device device, Type type, const std::vector<int64_t>& shape,
                          std::shared_ptr<void> use, bool versioned) {
  Tensor tensor = {};
  tensor.data = data;
  tensor.device = device;
  tensor.num_dims = static_cast<int32_t>(shape.size());
  tensor.type = type;
  return versioned ? MakeCapsule<ManagedVersioned>(kVersionedCapsule, tensor, shape, std::move(use))
                   : MakeCapsule<Managed>(kCapsule, tensor, shape, std::move(use));
}

bool IsOnCuda(py::handle object) {
  if (!HasDlpack(object)) return false;
  Device device;
  try {
    return CheckSaidDevice(object, {"", ""}, &device).ok() && device.kind == DeviceKind::kCuda;
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
  } catch (py::cast_error&) {
  }
  return false;  // what is wrong with it is said where it is read
}

Status DlpackToTensor(py::handle object, const TensorName& name, Tensor* tensor, CallStream* stream,
                      bool* recognised) {
  *recognised = HasDlpack(object);
  if (!*recognised) return Ok();
  Imported imported;
  COLLOPS_RETURN_IF_ERROR(Import(object, name, stream, &imported));
  dlpack::SetView(*imported.tensor, imported.device, tensor);
  tensor->view.read_only = IsReadOnly(object, imported);
  tensor->owner = std::move(imported.capsule);
  return Ok();
}

void BindDlpack(py::module_& module) {
  module.def("from_dlpack", &FromDlpack, py::arg("tensor"), py::arg("operation"), py::arg("label"));
}

}  // namespace collops::bindings
