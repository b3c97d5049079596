#include "exchange_calls.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "plain_call.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

using List = std::vector<int64_t>;

// The numbers of elements of some ranks, and where they begin one after the other.
struct Packed {
  Packed(const List& rows, int64_t row_elements) {
    for (const int64_t count : rows) {
      displs.push_back(total);
      counts.push_back(count * row_elements);
      total += counts.back();
    }
  }

  List counts;
  List displs;
  int64_t total = 0;
};

// One rank's part in a call: the rows for each rank and from each, one after the other, and what
// else the ranks compare. Made once per set of sizes, used by every call that has them.
class Slices {
 public:
  // `method` is for messages, `operation` the name by which the ranks know the call. `sizes` is the
  // one list that all ranks pass, where there is one: then it says all rows. `type` names elements
  // that travel as bytes.
  Slices(std::string method, const std::string& operation, List sends, List receives,
         int64_t row_elements, std::string type, const List& shape, int root, List sizes)
      : method_(std::move(method)),
        operation_(LastingName(operation)),
        send_rows_(std::move(sends)),
        recv_rows_(std::move(receives)),
        sends_(send_rows_, row_elements),
        receives_(recv_rows_, row_elements),
        type_(std::move(type)),
        shape_(Shape::From(shape.data(), static_cast<int>(shape.size()))),
        root_(root),
        sizes_(std::move(sizes)) {}

  const char* method() const { return method_.c_str(); }
  const char* operation() const { return operation_; }
  const Packed& sends() const { return sends_; }
  const Packed& receives() const { return receives_; }

  Status Check(int rank_size) const {
    for (const List* list : {&send_rows_, &recv_rows_}) {
      CHECK_ARG(list->size() == static_cast<size_t>(rank_size), ERROR_INVALID_PARAM, method(), ": ",
                list->size(), " sizes for ", rank_size, " ranks");
    }
    return Ok();
  }

  void AgreeOn(const char* dtype, int rank, int rank_size, Agreement* agreement) const {
    CollectiveTerms terms;
    terms.dtype = type_.empty() ? dtype : type_.c_str();
    terms.root = root_;
    terms.x_shape = shape_;
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
    if (sizes_.empty()) {
      agreement->Pairwise("send_sizes", send_rows_.data(), "recv_sizes", recv_rows_.data(), rank,
                          rank_size);
    } else {
      agreement->EqualList("sizes", sizes_.data(), rank_size);
    }
  }

 private:
  std::string method_;
  const char* operation_;
  List send_rows_;
  List recv_rows_;
  Packed sends_;
  Packed receives_;
  std::string type_;
  Shape shape_;
  int root_;
  List sizes_;
};

Status Prepare(const Communicator& communicator, py::handle x, py::handle out, const Slices& slices,
               PlainCall<ExchangeVCall>* prepared) {
  auto& [tensors, agreement, call] = *prepared;
  const Packed& sends = slices.sends();
  const Packed& receives = slices.receives();
  RETURN_IF_ERROR(slices.Check(communicator.size()));
  RETURN_IF_ERROR(ToPlainTensors(x, out, slices.method(), sends.total, receives.total, &tensors));
  RETURN_IF_ERROR(CheckApart(tensors, slices.method(), -1, ""));
  call.dtype = tensors.x.view.desc.dtype;
  call.x = tensors.x.view.data;
  call.send_counts = sends.counts.data();
  call.sdispls = sends.displs.data();
  call.output = tensors.out.view.data;
  call.recv_counts = receives.counts.data();
  call.rdispls = receives.displs.data();
  slices.AgreeOn(Name(call.dtype), communicator.rank(), communicator.size(), &agreement);
  return communicator.Supports(Primitive::kExchange, call.dtype, ReduceOp::kSum);
}

template <typename Caller>
void ExchangeV(Caller& caller, const py::object& x, const py::object& out, const Slices& slices) {
  PlainCall<ExchangeVCall> prepared(slices.operation());
  const Status check = Prepare(CommunicatorOf(caller), x, out, slices, &prepared);
  MakeOrRefuse(caller, slices.operation(), check, &prepared, &Communicator::ExchangeV);
}

// The root's text on every rank; ranks that pass other roots or sizes disagree.
std::string ShareFromRoot(Communicator& communicator, const std::string& operation, int root,
                          const List& sizes, const std::string& text) {
  constexpr size_t kMost = 1024;
  const auto size = static_cast<size_t>(communicator.size());
  const Status check = [&]() -> Status {
    CHECK_ARG(root >= 0 && root < communicator.size(), ERROR_INVALID_PARAM, operation,
              ": root must be in [0, ", size, "), got ", root);
    CHECK_ARG(sizes.size() == size, ERROR_INVALID_PARAM, operation, ": ", sizes.size(),
              " sizes for ", size, " ranks");
    CHECK_ARG(text.size() < kMost, ERROR_INVALID_PARAM, operation,
              ": what the root says of its elements is longer than ", kMost, " bytes");
    return Ok();
  }();
  const char* name = LastingName(operation);
  std::vector<char> mine(kMost);
  std::memcpy(mine.data(), text.data(), std::min(text.size(), kMost));
  std::vector<char> all(kMost * size);
  RunOrRefuse(communicator, name, check, [&] {
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

void BindExchangeCalls(py::module_& module,
                       py::class_<Communicator, std::shared_ptr<Communicator>>& communicator,
                       py::class_<Starter>& starter) {
  py::class_<Slices>(module, "Slices")
      .def(py::init<std::string, const std::string&, List, List, int64_t, std::string, const List&,
                    int, List>(),
           py::arg("method"), py::arg("operation"), py::arg("sends"), py::arg("receives"),
           py::arg("row_elements"), py::arg("type"), py::arg("shape"), py::arg("root") = 0,
           py::arg("sizes") = List());
  starter.def(
      "exchange_v",
      [](Starter& self, const py::object& x, const py::object& out, const py::object& slices) {
        self.Keep(x, out, slices);
        ExchangeV(self, x, out, slices.cast<const Slices&>());
      },
      py::arg("x"), py::arg("out"), py::arg("slices"));
  communicator
      .def("exchange_v", &ExchangeV<Communicator>, py::arg("x"), py::arg("out"), py::arg("slices"))
      .def("share_from_root", &ShareFromRoot, py::arg("operation"), py::arg("root"),
           py::arg("sizes"), py::arg("text"));
}

}  // namespace collops::bindings
