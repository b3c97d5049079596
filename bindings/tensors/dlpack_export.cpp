#include "tensors/dlpack_export.h"

#include <utility>

namespace collops::bindings {
namespace {

namespace py = pybind11;

// What a capsule points to, with what that points to.
template <typename Managed>
struct Handed {
  Managed managed = {};
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::shared_ptr<void> use;

  static void Release(Managed* managed) { delete static_cast<Handed*>(managed->context); }
};

const char* NameOf(const dlpack::Managed*) {
  return "dltensor";
}
const char* NameOf(const dlpack::ManagedVersioned*) {
  return "dltensor_versioned";
}

void SetVersion(dlpack::Managed*) {}
void SetVersion(dlpack::ManagedVersioned* managed) {
  managed->major = dlpack::kMajorVersion;
}

// A consumer renames the capsule and releases the tensor itself.
template <typename Managed>
void DestroyCapsule(PyObject* capsule) {
  const char* const name = NameOf(static_cast<const Managed*>(nullptr));
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->release(managed);
}

std::vector<int64_t> StridesOf(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * shape[dim];
  return strides;
}

template <typename Managed>
py::object MakeCapsule(dlpack::Tensor tensor, const std::vector<int64_t>& shape,
                       std::shared_ptr<void> use) {
  auto exported = std::make_unique<Handed<Managed>>();
  exported->shape = shape;
  exported->strides = StridesOf(shape);
  exported->use = std::move(use);
  tensor.shape = exported->shape.data();
  tensor.strides = exported->strides.data();
  Managed& managed = exported->managed;
  managed.tensor = tensor;
  managed.context = exported.get();
  managed.release = &Handed<Managed>::Release;
  SetVersion(&managed);
  PyObject* const capsule = PyCapsule_New(&managed, NameOf(&managed), &DestroyCapsule<Managed>);
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(exported.release());  // the capsule's
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

py::object ExportTensor(void* data, dlpack::Device device, dlpack::Type type,
                        const std::vector<int64_t>& shape, std::shared_ptr<void> use,
                        bool versioned) {
  dlpack::Tensor tensor = {};
  tensor.data = data;
  tensor.device = device;
  tensor.num_dims = static_cast<int32_t>(shape.size());
  tensor.type = type;
  if (versioned) return MakeCapsule<dlpack::ManagedVersioned>(tensor, shape, std::move(use));
  return MakeCapsule<dlpack::Managed>(tensor, shape, std::move(use));
}

}  // namespace collops::bindings
