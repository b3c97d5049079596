#include "plain/row_exchange.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "collops/operators/plain/row_blocks.h"
#include "plain/plain_call.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

// What a rank says of one tensor: its element type, and its sizes without those that are exchanged.
using TensorTerms = std::tuple<std::string, std::vector<int64_t>>;

// What the ranks agree on before they tell each other their rows: how many tensors, and of each the
// element type and the other sizes. Made once per list of such tensors.
class RowExchange {
 public:
  RowExchange(const std::string& operation, int dim, const std::vector<TensorTerms>& tensors) {
    const char* name = LastingName(operation);
    const size_t count = tensors.size();
    for (size_t i = 0; i < count; ++i) {
      if (i % kTensorsAtOnce == 0) {
        agreements_.emplace_back(name);
        agreements_.back().Equal("the number of tensors", static_cast<int64_t>(count));
        agreements_.back().Equal("dim", dim);
        agreements_.back().InPlainWords(MethodOf(operation), 1);
      }
      const std::string label = count == 1 ? "x" : Concat("x[", i, "]");
      AddTensor(label, dim, tensors[i], &agreements_.back());
    }
  }

  // The numbers of every rank, as many of each, one rank after the other; waits for them.
  std::vector<int64_t> Run(Communicator& communicator, const std::vector<int64_t>& mine) const {
    std::vector<int64_t> all(mine.size() * static_cast<size_t>(communicator.size()));
    const auto bytes = static_cast<int64_t>(mine.size() * sizeof(int64_t));
    RunNumbered(communicator, [&]() -> Status {
      for (const Agreement& agreement : agreements_) {
        COLLOPS_RETURN_IF_ERROR(communicator.Share(agreement, mine.data(), bytes, all.data()));
      }
      return Ok();
    });
    ContinueCall(communicator);
    return all;
  }

 private:
  // What one agreement has room for.
  static constexpr size_t kTensorsAtOnce = 2;

  void AddTensor(const std::string& label, int dim, const TensorTerms& terms,
                 Agreement* agreement) {
    const auto& [type, sizes] = terms;
    names_.push_back(Concat(label, "'s dtype"));
    agreement->EqualText(names_.back().c_str(), type.c_str());
    Shape shape;
    shape.num_dims = static_cast<int>(std::min<size_t>(sizes.size(), kMaxDims));
    std::copy_n(sizes.begin(), shape.num_dims, shape.dims);
    names_.push_back(Concat(label, "'s shape ", dim == 0 ? "after" : "without", " dim ", dim));
    agreement->EqualShape(names_.back().c_str(), shape);
    names_.push_back(Concat(label, "'s number of dims"));
    agreement->Equal(names_.back().c_str(), static_cast<int64_t>(sizes.size()) + 1);
    uint64_t further = 0;
    for (size_t i = kMaxDims; i < sizes.size(); ++i) {
      further = further * 31 + static_cast<uint64_t>(sizes[i]);
    }
    names_.push_back(Concat(label, "'s sizes after the first ", kMaxDims, " (a digest)"));
    agreement->Equal(names_.back().c_str(), static_cast<int64_t>(further));
  }

  std::vector<Agreement> agreements_;
  std::deque<std::string> names_;  // which the agreements point at
};

// The root's text on every rank; ranks that pass other roots or sizes disagree.
std::string ShareFromRoot(Communicator& communicator, const std::string& operation, int root,
                          const Rows& sizes, const std::string& text) {
  constexpr size_t kMost = 1024;
  const auto size = static_cast<size_t>(communicator.size());
  const Status check = [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(CheckRoot(operation.c_str(), root, communicator.size()));
    COLLOPS_RETURN_IF_ERROR(CheckSizes(operation.c_str(), "sizes", sizes, communicator.size()));
    COLLOPS_CHECK_ARG(text.size() < kMost, ERROR_INVALID_PARAM, operation,
                      ": what the root says of its elements is longer than ", kMost, " bytes");
    return Ok();
  }();
  const char* name = LastingName(operation);
  std::vector<char> mine(kMost);
  std::memcpy(mine.data(), text.data(), std::min(text.size(), kMost));
  std::vector<char> all(kMost * size);
  RunNumbered(communicator, [&]() -> Status {
    if (!check.ok()) {
      // An error of the refusal matters less than what is wrong with the call.
      static_cast<void>(communicator.Refuse("scatterv", check));
      return check;
    }
    Agreement agreement(name);
    agreement.Equal("rankRoot", root)
        .EqualList("sizes", sizes.data(), communicator.size())
        .InPlainWords("scatterv", 1);
    return communicator.Share(agreement, mine.data(), kMost, all.data());
  });
  ContinueCall(communicator);
  const char* told = all.data() + static_cast<size_t>(root) * kMost;
  return std::string(told, strnlen(told, kMost));
}

}  // namespace

void BindRowExchange(py::module_& module,
                     py::class_<Communicator, std::shared_ptr<Communicator>>& communicator) {
  py::class_<RowExchange>(module, "RowExchange")
      .def(py::init<const std::string&, int, const std::vector<TensorTerms>&>(),
           py::arg("operation"), py::arg("dim"), py::arg("tensors"));
  communicator.def(
      "exchange_rows",
      [](Communicator& self, const RowExchange& exchange, const Rows& rows) {
        return exchange.Run(self, rows);
      },
      py::arg("exchange"), py::arg("rows"));
  communicator.def("share_from_root", &ShareFromRoot, py::arg("operation"), py::arg("root"),
                   py::arg("sizes"), py::arg("text"));
}

}  // namespace collops::bindings
