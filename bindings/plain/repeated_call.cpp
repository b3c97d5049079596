#include "plain/repeated_call.h"

#include <algorithm>
#include <utility>

#include "plain/plain_call.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

bool IsList(py::handle object) {
  return PyList_CheckExact(object.ptr()) != 0 || PyTuple_CheckExact(object.ptr()) != 0;
}

// Whether it is a Python int (not a bool, not numpy's) that int64_t holds.
bool ReadNumber(py::handle object, int64_t* number) {
  if (PyLong_CheckExact(object.ptr()) == 0) return false;
  int overflow = 0;
  *number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  return overflow == 0;
}

}  // namespace

bool RepeatedCall::Argument::Equals(py::handle given) const {
  if (!is_list) return given.is(value);
  if (!IsList(given)) return false;
  PyObject* const list = given.ptr();
  const auto size = static_cast<size_t>(PySequence_Fast_GET_SIZE(list));
  bool equal = size == numbers.size();
  for (size_t i = 0; i < size && equal; ++i) {
    int64_t number = 0;
    equal = ReadNumber(PySequence_Fast_GET_ITEM(list, static_cast<Py_ssize_t>(i)), &number) &&
            number == numbers[i];
  }
  return equal;
}

// The tensor as it lies in memory; false if the core could not use it as it is.
bool RepeatedCall::Read(py::handle object, CallStream* stream, Owners* owners,
                        PlainTensor* tensor) {
  Tensor read;
  const Status status = ToTensor(object, {"", "", -1, nullptr}, &read, stream);
  if (!status.ok() || (read.owner && read.view.device.kind == DeviceKind::kCpu)) return false;
  *tensor = read;
  if (read.owner) owners->push_back(std::move(read.owner));
  const TensorView& view = tensor->view;
  return view.contiguous && view.desc.dtype != DType::kUndefined &&
         view.desc.shape.num_dims <= kMaxDims;
}

bool RepeatedCall::IsLike(const Side& side, py::handle object, const PlainTensor& tensor) {
  return py::type::handle_of(object).is(side.type) && tensor.view.desc == side.desc;
}

const RepeatedCall::Kept* RepeatedCall::Find(const py::object& x, const PlainTensor& x_tensor,
                                             const py::args& arguments) {
  const auto is_like = [&](const std::shared_ptr<const Kept>& kept) {
    if (kept->arguments.size() != arguments.size() || !IsLike(kept->x, x, x_tensor)) return false;
    for (size_t i = 0; i < arguments.size(); ++i) {
      PyObject* const given = PyTuple_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i));
      if (!kept->arguments[i].Equals(given)) return false;
    }
    return true;
  };
  const auto found = std::find_if(kept_.begin(), kept_.end(), is_like);
  if (found == kept_.end()) return nullptr;
  std::rotate(kept_.begin(), found, found + 1);
  return kept_.front().get();
}

py::object RepeatedCall::Run(const py::object& x, const py::object& out,
                             const py::args& arguments) {
  PlainTensors tensors;
  CallStream stream;
  Owners owners;
  if (kept_.empty() || !Read(x, &stream, &owners, &tensors.x)) return py::none();
  const Kept* const found = Find(x, tensors.x, arguments);
  if (found == nullptr || (out.is_none() && found->make.is_none())) return py::none();
  // Another thread may come here while this one waits for its peers.
  const std::shared_ptr<const Kept> kept = kept_.front();
  py::object result = out;
  if (out.is_none()) {
    PyObject* const made = PyObject_CallNoArgs(kept->make.ptr());
    if (made == nullptr) {
      if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw py::error_already_set();
      PyErr_Clear();  // the caller tries again, and says what is wrong
      return py::none();
    }
    result = py::reinterpret_steal<py::object>(made);
  }
  if (!Read(result, &stream, &owners, &tensors.out)) return py::none();
  if (!IsLike(kept->out, result, tensors.out)) return py::none();
  ThrowIfError(stream.Find(kept->plan->method(), &tensors.stream));
  const uint64_t bytes =
      tensors.stream == nullptr ? 0 : kept->plan->DeviceWorkspace(*communicator_, tensors);
  if (bytes > 0) {
    const Device& device = tensors.x.view.device;
    PlainTensor memory;
    py::object room;
    const Status made = DeviceMemory(x, device, bytes, kept->plan->method(), tensors.stream, &room);
    if (!made.ok() || !Read(room, &stream, &owners, &memory)) return py::none();
    owners.push_back(std::move(room));
    tensors.workspace = memory.view.data;
  }
  RunNumbered(*communicator_, [&] { return kept->plan->Run(communicator_.get(), tensors); });
  return result;
}

void RepeatedCall::Keep(std::shared_ptr<const PlainPlan> plan, const py::object& x,
                        const py::object& out, const py::object& make, const py::args& arguments) {
  auto kept = std::make_shared<Kept>();
  for (py::handle given : arguments) {
    Argument argument;
    argument.is_list = IsList(given);
    argument.value = py::reinterpret_borrow<py::object>(given);
    if (argument.is_list) {
      for (py::handle item : argument.value) {
        if (!ReadNumber(item, &argument.numbers.emplace_back())) return;
      }
      argument.value = py::none();
    } else if (!given.is_none() && !py::isinstance<py::str>(given) &&
               PyLong_CheckExact(given.ptr()) == 0) {
      return;
    }
    kept->arguments.push_back(std::move(argument));
  }
  PlainTensor x_tensor;
  PlainTensor out_tensor;
  CallStream stream;
  stream.OnlyLook();
  Owners owners;
  if (!Read(x, &stream, &owners, &x_tensor) || !Read(out, &stream, &owners, &out_tensor)) return;
  kept->plan = std::move(plan);
  kept->make = make;
  kept->x = {py::type::of(x), x_tensor.view.desc};
  kept->out = {py::type::of(out), out_tensor.view.desc};
  if (kept_.size() == kMostKept) kept_.pop_back();
  kept_.insert(kept_.begin(), std::move(kept));
}

void BindRepeatedCall(py::module_& module) {
  py::class_<RepeatedCall>(module, "RepeatedCall")
      .def(py::init<std::shared_ptr<Communicator>>(), py::arg("communicator"))
      .def("run", &RepeatedCall::Run, py::arg("x"), py::arg("out"))
      .def(
          "keep",
          [](RepeatedCall& self, const std::shared_ptr<PlainPlan>& plan, const py::object& x,
             const py::object& out, const py::object& make,
             const py::args& arguments) { self.Keep(plan, x, out, make, arguments); },
          py::arg("plan"), py::arg("x"), py::arg("out"), py::arg("make"));
}

}  // namespace collops::bindings
