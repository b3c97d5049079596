#include "plain/arguments.h"

#include <limits>
#include <utility>

#include "module.h"
#include "status.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

constexpr const char* kList = " must be a list of whole numbers, one per rank, got ";

// The words of collops.torch and refusals of reductions that no method has.
py::object OfReductions(const char* function) {
  return py::module_::import("collops.collectives.reductions").attr(function);
}

// Whether it is a Python int (not numpy's) that int64_t holds.
bool ReadPlainNumber(py::handle object, int64_t* number) {
  if (PyLong_CheckExact(object.ptr()) == 0) return false;
  int overflow = 0;
  *number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  return overflow == 0;
}

// Of what operator.index() takes; false: it does not, and no error is set.
bool ReadIndex(const char* method, const std::string& label, py::handle value, int64_t* number) {
  if (ReadPlainNumber(value, number)) return true;
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    return false;
  }
  int overflow = 0;
  *number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || *number == std::numeric_limits<int64_t>::min()) {
    Throw(ERROR_INVALID_PARAM, method, ": ", label, " must be an int64, got ",
          std::string(py::str(index)));
  }
  return true;
}

bool ReadPlainNumbers(py::handle list, Rows* numbers) {
  if (!IsList(list)) return false;
  const auto size = static_cast<size_t>(PySequence_Fast_GET_SIZE(list.ptr()));
  numbers->resize(size);
  for (size_t i = 0; i < size; ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i));
    if (!ReadPlainNumber(item, &(*numbers)[i])) return false;
  }
  return true;
}

Rows ReadNumbers(const char* method, const char* label, py::handle values, const char* what) {
  Rows numbers;
  if (ReadPlainNumbers(values, &numbers)) return numbers;
  numbers.clear();
  const auto list = py::reinterpret_steal<py::object>(PySequence_Tuple(values.ptr()));
  if (!list && PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
  PyErr_Clear();
  bool are_whole = static_cast<bool>(list);
  for (size_t i = 0; are_whole && i < py::len(list); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i));
    are_whole = ReadIndex(method, Concat(label, "[", i, "]"), item, &numbers.emplace_back());
  }
  if (!are_whole) {
    Throw(ERROR_INVALID_PARAM, method, ": ", label, " must be ", what, ", got ", Repr(values));
  }
  return numbers;
}

// A list, an array or a tensor as a tuple; null: it is none.
py::object AsTuple(const py::object& value) {
  try {
    py::object list = value;
    if (!IsList(value)) list = py::module_::import("numpy").attr("asarray")(value).attr("tolist")();
    py::tuple numbers(list);
    static_cast<void>(py::hash(numbers));
    return std::move(numbers);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    return py::object();
  }
}

void RefuseOtherKinds(const char* method, const char* label, const py::object& value) {
  if (PyDict_Check(value.ptr()) != 0 || PyAnySet_Check(value.ptr()) != 0) {
    Throw(ERROR_INVALID_PARAM, method, ": ", label,
          " must be a list in the order of the ranks, got ", Repr(value));
  }
  const py::object num_dims = py::getattr(value, "ndim", py::int_(1));
  if (!num_dims.equal(py::int_(1))) {  // the result's memory, where the sizes stand
    Throw(ERROR_INVALID_PARAM, method, ": ", label, kList, TypeNameOf(value), " of shape ",
          Repr(py::list(value.attr("shape"))), ": pass memory as out=");
  }
  if (IsMasked(value)) {
    Throw(ERROR_INVALID_PARAM, method, ": ", label, " is a masked array: pass .filled(value)");
  }
}

}  // namespace

DType ReadDType(const char* method, const char* label, py::handle value) {
  py::object name = py::getattr(value, "__name__", py::none());           // a class of numbers
  if (name.is_none()) name = py::getattr(value, "name", py::str(value));  // numpy's dtype
  const std::string text = py::str(name);
  DType dtype = DType::kUndefined;
  if (!ParseDType(text.substr(text.rfind('.') + 1).c_str(), &dtype)) {
    Throw(ERROR_INVALID_PARAM, method, ": ", label, " must be an element type, got ", Repr(value));
  }
  return dtype;
}

bool IsList(py::handle object) {
  return PyList_Check(object.ptr()) != 0 || PyTuple_Check(object.ptr()) != 0;
}

std::string Repr(py::handle object) {
  return py::repr(object);
}

std::string TypeNameOf(py::handle object) {
  return py::str(py::type::handle_of(object).attr("__name__"));
}

int64_t ReadWhole(const char* method, const std::string& label, py::handle value) {
  int64_t number = 0;
  if (!ReadIndex(method, label, value, &number)) {
    Throw(ERROR_INVALID_PARAM, method, ": ", label, " must be a whole number, got ", Repr(value));
  }
  return number;
}

Rows ReadSizes(const char* method, const char* label, py::handle value) {
  Rows numbers;
  if (ReadPlainNumbers(value, &numbers)) return numbers;
  const auto given = py::reinterpret_borrow<py::object>(value);
  RefuseOtherKinds(method, label, given);
  const py::object list = AsTuple(given);
  if (!list) Throw(ERROR_INVALID_PARAM, method, ": ", label, kList, Repr(value));
  return ReadNumbers(method, label, list, "whole numbers of rows, one per rank");
}

Rows ReadMembers(const char* method, const char* label, py::handle value) {
  return ReadNumbers(method, label, value, "whole numbers, one per member of the group");
}

Rows ReadRanks(const char* method, const char* label, py::handle value) {
  return ReadNumbers(method, label, value, "a list of ranks");
}

Rows ReadTable(const char* method, const char* label, py::handle value) {
  const auto refuse = [&] {
    Throw(ERROR_INVALID_PARAM, method, ": ", label,
          " must be whole numbers [ranks, experts], a line per rank, got ", Repr(value));
  };
  py::object table;
  try {
    table = py::module_::import("numpy").attr("asarray")(value);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
    refuse();
  }
  const py::object kind = table.attr("dtype").attr("kind");
  const py::object num_dims = table.attr("ndim");
  const bool is_whole = kind.equal(py::str("i")) || kind.equal(py::str("u"));
  if (!is_whole || !num_dims.equal(py::int_(2))) refuse();
  return ReadNumbers(method, label, table.attr("ravel")().attr("tolist")(), "whole numbers");
}

ReduceOp ReadReduction(const char* method, const py::object& value, bool only_sums) {
  constexpr ReduceOp kSums[] = {ReduceOp::kSum, ReduceOp::kAvg};
  constexpr ReduceOp kAll[] = {ReduceOp::kSum,   ReduceOp::kProd,  ReduceOp::kMax,
                               ReduceOp::kMin,   ReduceOp::kAvg,   ReduceOp::kBitAnd,
                               ReduceOp::kBitOr, ReduceOp::kBitXor};
  py::object word = value;
  if (PyUnicode_Check(value.ptr()) == 0) word = OfReductions("reduction_name")(value);
  const ReduceOp* const begin = only_sums ? std::begin(kSums) : std::begin(kAll);
  const ReduceOp* const end = only_sums ? std::end(kSums) : std::end(kAll);
  for (const ReduceOp* op = begin; op != end && PyUnicode_Check(word.ptr()) != 0; ++op) {
    if (PyUnicode_CompareWithASCIIString(word.ptr(), Name(*op)) == 0) return *op;
  }
  py::list known;
  for (const ReduceOp* op = begin; op != end; ++op) known.append(Name(*op));
  OfReductions("refuse_reduction")(method, only_sums ? word : value, known);
  return ReduceOp::kSum;  // not reached: it raises
}

}  // namespace collops::bindings
