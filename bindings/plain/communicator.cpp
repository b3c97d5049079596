#include "collops/comm/communicator.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <set>
#include <string>

#include "collops/comm/window.h"
#include "module.h"
#include "plain/plain_level.h"
#include "plain/started.h"
#include "status.h"

namespace collops::bindings {
namespace {

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

using Given = PlainLevel::Arguments;
template <py::object Given::*>
using Argument = const py::object&;

// Binds a method whose arguments are these, in their order.
template <PlainCall::Method kMethod, py::object Given::*... kArguments>
void BindCall(py::class_<PlainLevel, std::shared_ptr<PlainLevel>>* bound) {
  bound->def(PlainCall(kMethod).name(), [](PlainLevel& self, Argument<kArguments>... values) {
    Given given;
    ((given.*kArguments = values), ...);
    return self.Call(kMethod, given);
  });
}

void BindPlainLevel(py::module_& module) {
  py::class_<PlainLevel, std::shared_ptr<PlainLevel>> bound(module, "PlainLevel");
  bound
      .def(py::init<std::shared_ptr<Communicator>, py::object>(), py::arg("communicator"),
           py::arg("make_part"))
      .def("starting", &PlainLevel::Starting)
      .def("send", &PlainLevel::Send)
      .def("recv", &PlainLevel::Recv)
      .def("exchange", &PlainLevel::Exchange)
      .def("all_reduce_at_once",
           [](PlainLevel& self, const py::object& x, const py::object& op, const py::object& out) {
             PlainLevel::Arguments given;
             given.x = x;
             given.op = op;
             given.out = out;
             return self.CallAtOnce(PlainCall::kAllReduce, given);
           })
      .def("barrier", &PlainLevel::Barrier)
      .def("split", &PlainLevel::Split)
      .def("shrink", &PlainLevel::Shrink)
      .def("grow", &PlainLevel::Grow)
      .def("refuse", [](const PlainLevel& self, const std::string& operation, int code,
                        const std::string& message) {
        self.Refuse(MethodOf(operation), Status(static_cast<ErrorCode>(code), message));
      });
  using Moe = PlainLevel::MoeArguments;
  using Object = const py::object&;
  bound
      .def("moe_dispatch",
           [](PlainLevel& self, Object x, Object topk_ids, Object num_experts, Object quantize,
              Object scales, Object handle, Object out) {
             return self.DispatchToExperts(
                 Moe{x, topk_ids, num_experts, py::none(), quantize, scales, handle, out});
           })
      .def("moe_combine",
           [](PlainLevel& self, Object rows, Object topk_weights, Object handle, Object out) {
             const py::none none;
             return self.CombineFromExperts(
                 Moe{rows, none, none, topk_weights, none, none, handle, out});
           });
  using P = PlainCall;
  using A = Given;
  BindCall<P::kAllGather, &A::x, &A::out>(&bound);
  BindCall<P::kAllGatherV, &A::x, &A::sizes, &A::dim, &A::out>(&bound);
  BindCall<P::kAllReduce, &A::x, &A::op, &A::out>(&bound);
  BindCall<P::kAllToAllV, &A::x, &A::sizes, &A::recv_sizes, &A::out>(&bound);
  BindCall<P::kBroadcast, &A::x, &A::root>(&bound);
  BindCall<P::kGatherV, &A::x, &A::sizes, &A::root>(&bound);
  BindCall<P::kReduce, &A::x, &A::op, &A::root, &A::out>(&bound);
  BindCall<P::kReduceScatter, &A::x, &A::op, &A::out>(&bound);
  BindCall<P::kReduceScatterV, &A::x, &A::sizes, &A::dim, &A::op, &A::out>(&bound);
  BindCall<P::kScatterV, &A::x, &A::sizes, &A::root>(&bound);
  BindCall<P::kAllReducePartials, &A::x, &A::op, &A::out, &A::partials, &A::leaves, &A::leaf_begin>(
      &bound);
  BindCall<P::kReduceScatterVPartials, &A::x, &A::sizes, &A::dim, &A::op, &A::out, &A::partials,
           &A::leaves, &A::leaf_begin>(&bound);
  BindCall<P::kAllGatherMatmul, &A::x, &A::weight, &A::out, &A::residual, &A::trans_weight,
           &A::quant, &A::leaves, &A::gather_rows>(&bound);
  BindCall<P::kMatmulReduceScatter, &A::x, &A::weight, &A::out, &A::residual, &A::trans_weight,
           &A::quant, &A::leaves, &A::sum_columns, &A::scatter_rows, &A::op>(&bound);
  BindCall<P::kMatmulAllReduce, &A::x, &A::weight, &A::out, &A::residual, &A::trans_weight,
           &A::quant, &A::leaves, &A::sum_columns>(&bound);
  BindCall<P::kAllGatherMatmulReduceScatter, &A::x, &A::weight, &A::out, &A::residual,
           &A::trans_weight, &A::quant, &A::leaves, &A::sum_columns, &A::grid, &A::gather_rows,
           &A::scatter_rows>(&bound);
  BindCall<P::kMatmul, &A::x, &A::weight, &A::out, &A::residual, &A::trans_weight, &A::quant,
           &A::leaves>(&bound);
  BindCall<P::kAllToAllVGroupedMatmul, &A::x, &A::weight, &A::sizes, &A::recv_sizes, &A::out,
           &A::residual, &A::trans_weight, &A::quant, &A::max_rows, &A::return_rows>(&bound);
  BindCall<P::kGroupedMatmulAllToAllV, &A::x, &A::weight, &A::sizes, &A::recv_sizes, &A::out,
           &A::residual, &A::trans_weight, &A::quant>(&bound);
  BindCall<P::kAllToAllMatmul, &A::x, &A::weight, &A::out, &A::residual, &A::trans_weight,
           &A::return_rows>(&bound);
  BindCall<P::kMatmulAllToAll, &A::x, &A::weight, &A::out, &A::residual, &A::trans_weight>(&bound);
}

// Memory that the other ranks read in place. The array's base owns the window, so the memory lives
// as long as any array on it.
py::array_t<uint8_t> AllocateWindow(Communicator& communicator, int64_t bytes) {
  auto window = std::make_unique<std::shared_ptr<Window>>();
  RunWithoutGil([&] { return communicator.AllocateWindow(bytes, window.get()); });
  auto* data = static_cast<uint8_t*>((*window)->data());
  const py::capsule base(window.get(),
                         [](void* held) { delete static_cast<std::shared_ptr<Window>*>(held); });
  static_cast<void>(window.release());
  return py::array_t<uint8_t>(static_cast<py::ssize_t>(bytes), data, base);
}

}  // namespace

void BindCommunicator(py::module_& module) {
  py::class_<Communicator, std::shared_ptr<Communicator>> bound(module, "Communicator");
  bound.def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("size", &Communicator::size)
      .def_property_readonly("failed", &Communicator::failed)
      .def_property_readonly("old_ranks", &Communicator::old_ranks)
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
  module.def("window", &AllocateWindow, py::arg("communicator"), py::arg("bytes"));
  BindPlainLevel(module);
  BindStartedCall(module);
}

}  // namespace collops::bindings
