#include "collops/comm/communicator.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <set>
#include <string>

#include "module.h"
#include "plain/plain_level.h"
#include "plain/started.h"
#include "status.h"

namespace collops::bindings {
namespace {

using Object = py::object;

// The method that makes calls of this name: "all_gatherv" of "AllGatherV". It lives as long as the
// process, which is what calls take.
const char* MethodOf(const std::string& operation) {
  const size_t end = std::min(operation.find(' '), operation.size());
  std::string method;
  for (size_t i = 0; i < end; ++i) {
    const char c = operation[i];
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && i > 0 && c != 'V') method += '_';
    method += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  // Never destroyed: calls may still run while static objects go. Guarded by the GIL.
  static auto* const names = new std::set<std::string>;
  return names->insert(method + operation.substr(end)).first->c_str();
}

// The four products: which arguments each has.
void BindProducts(py::class_<PlainLevel, std::shared_ptr<PlainLevel>>& bound) {
  bound
      .def("all_gather_matmul",
           [](PlainLevel& self, const Object& x, const Object& weight, const Object& out,
              const Object& residual, const Object& trans_weight, const Object& gather_rows) {
             PlainLevel::ProductArguments given;
             given.residual = residual;
             given.trans_weight = trans_weight;
             given.gather_rows = gather_rows;
             return self.Multiply(PlainCall::kAllGatherMatmul, x, weight, out, given);
           })
      .def("matmul_reduce_scatter",
           [](PlainLevel& self, const Object& x, const Object& weight, const Object& out,
              const Object& residual, const Object& trans_weight, const Object& scatter_rows,
              const Object& op) {
             PlainLevel::ProductArguments given;
             given.residual = residual;
             given.trans_weight = trans_weight;
             given.scatter_rows = scatter_rows;
             given.op = op;
             return self.Multiply(PlainCall::kMatmulReduceScatter, x, weight, out, given);
           })
      .def("matmul_all_reduce",
           [](PlainLevel& self, const Object& x, const Object& weight, const Object& out,
              const Object& residual, const Object& trans_weight) {
             PlainLevel::ProductArguments given;
             given.residual = residual;
             given.trans_weight = trans_weight;
             return self.Multiply(PlainCall::kMatmulAllReduce, x, weight, out, given);
           })
      .def("all_gather_matmul_reduce_scatter",
           [](PlainLevel& self, const Object& x, const Object& weight, const Object& out,
              const Object& residual, const Object& trans_weight, const py::tuple& grid,
              const Object& gather_rows, const Object& scatter_rows) {
             PlainLevel::ProductArguments given;
             given.residual = residual;
             given.trans_weight = trans_weight;
             given.ag_dim = grid[0];
             given.rs_dim = grid[1];
             given.inner_dim_is_ag = grid[2];
             given.gather_rows = gather_rows;
             given.scatter_rows = scatter_rows;
             return self.Multiply(PlainCall::kAllGatherMatmulReduceScatter, x, weight, out, given);
           });
}

void BindPlainLevel(py::module_& module) {
  py::class_<PlainLevel, std::shared_ptr<PlainLevel>> bound(module, "PlainLevel");
  bound
      .def(py::init<std::shared_ptr<Communicator>, Object>(), py::arg("communicator"),
           py::arg("make_part"))
      .def("starting", &PlainLevel::Starting)
      .def("all_gather", &PlainLevel::AllGather)
      .def("all_gatherv", &PlainLevel::AllGatherV)
      .def("all_reduce", &PlainLevel::AllReduce)
      .def("all_to_allv", &PlainLevel::AllToAllV)
      .def("broadcast", &PlainLevel::Broadcast)
      .def("gatherv", &PlainLevel::GatherV)
      .def("reduce", &PlainLevel::Reduce)
      .def("reduce_scatter", &PlainLevel::ReduceScatter)
      .def("reduce_scatterv", &PlainLevel::ReduceScatterV)
      .def("scatterv", &PlainLevel::ScatterV)
      .def("send", &PlainLevel::Send)
      .def("recv", &PlainLevel::Recv)
      .def("exchange", &PlainLevel::Exchange)
      .def("barrier", &PlainLevel::Barrier)
      .def("split", &PlainLevel::Split)
      .def("refuse", [](const PlainLevel& self, const std::string& operation, int code,
                        const std::string& message) {
        self.Refuse(MethodOf(operation), Status(static_cast<ErrorCode>(code), message));
      });
  BindProducts(bound);
}

}  // namespace

void BindCommunicator(py::module_& module) {
  py::class_<Communicator, std::shared_ptr<Communicator>> bound(module, "Communicator");
  bound.def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("size", &Communicator::size)
      .def_property_readonly("failed", &Communicator::failed)
      .def_property("compares_shapes", &Communicator::compares_shapes,
                    &Communicator::set_compares_shapes)
      .def_property("timeout_s", &Communicator::timeout_s, &Communicator::set_timeout_s)
      .def_property_readonly("backend",
                             [](const Communicator& self) { return self.spec().backend; })
      .def_property_readonly("comm_domain",
                             [](const Communicator& self) { return self.spec().comm_domain; })
      .def_property_readonly("device",
                             [](const Communicator& self) { return ToString(self.device()); })
      .def_property_readonly(
          "handle", [](const Communicator& self) { return reinterpret_cast<uintptr_t>(&self); })
      .def("check_calls", [](Communicator& self) { RunWithoutGil([&] { return self.Check(); }); })
      .def("abort", &Communicator::Abort, py::arg("reason"), py::call_guard<ReleasedGil>())
      .def(
          "close",
          [](Communicator& self, const std::string& reason) {
            RunWithoutGil([&] {
              self.Close(reason);
              return Ok();
            });
          },
          py::arg("reason"));
  BindPlainLevel(module);
  BindStartedCall(module);
}

}  // namespace collops::bindings
