#include "plain/plain_plans.h"

#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>

#include "operators/all_gather_v/plain.h"
#include "operators/all_reduce/plain.h"
#include "operators/all_to_all_v/plain.h"
#include "operators/broadcast/plain.h"
#include "operators/reduce_scatter_v/plain.h"
#include "plain/plain_call.h"
#include "tensors/tensor.h"

namespace collops::bindings {
namespace {

namespace py = pybind11;

using Plan = std::shared_ptr<PlainPlan>;
using ConstPlan = std::shared_ptr<const PlainPlan>;
// x's shape, the dimension that is cut, elements of the core per element, and the name of a type
// whose elements travel as bytes.
using Whole = std::tuple<Rows, int, int64_t, std::string>;

RowShape ToRowShape(Whole whole) {
  RowShape shape;
  std::tie(shape.sizes, shape.dim, shape.unit, shape.type) = std::move(whole);
  return shape;
}

// What `make` makes, or its error.
template <typename Make>
Plan Made(const Make& make) {
  ConstPlan plan;
  ThrowIfError(make(&plan));
  return std::const_pointer_cast<PlainPlan>(plan);
}

Plan GatherPlan(const std::string& method, const std::string& operation, int rank, int rank_size,
                Whole x, Rows sizes, int num_tensors, bool one_shape) {
  const GatherSpec spec{LastingName(method),
                        LastingName(operation),
                        ToRowShape(std::move(x)),
                        std::move(sizes),
                        num_tensors,
                        one_shape};
  return Made([&](ConstPlan* plan) { return PlanGather(spec, rank, rank_size, plan); });
}

Plan ScatterPlan(const std::string& method, const std::string& operation, int rank_size, Whole x,
                 Rows sizes, const std::string& share, int root, int op) {
  ScatterSpec spec{LastingName(method), LastingName(operation), ToRowShape(std::move(x)),
                   std::move(sizes)};
  if (share == "equal") spec.share = ScatterSpec::kEqual;
  if (share == "root") spec.share = ScatterSpec::kRoot;
  spec.root = root;
  spec.op = static_cast<ReduceOp>(op);
  return Made([&](ConstPlan* plan) { return PlanScatter(spec, rank_size, plan); });
}

Plan ExchangePlan(const std::string& method, const std::string& operation, int rank_size, Whole row,
                  Rows sends, Rows receives, int root, Rows sizes) {
  const ExchangeSpec spec{LastingName(method), LastingName(operation), ToRowShape(std::move(row)),
                          std::move(sends),    std::move(receives),    root,
                          std::move(sizes)};
  return Made([&](ConstPlan* plan) { return PlanExchange(spec, rank_size, plan); });
}

// The tensors of one call; of a call in place there is no out.
struct Converted {
  Converted(const PlainPlan& plan, py::handle x, py::handle out) {
    status = ToTensor(x, {plan.method(), "x", -1, nullptr}, &held_x);
    if (status.ok() && !out.is_none()) {
      status = ToTensor(out, {plan.method(), "out", -1, nullptr}, &held_out);
    }
    tensors = {held_x, held_out};
  }

  Tensor held_x;
  Tensor held_out;
  PlainTensors tensors;
  Status status;
};

void Run(Communicator& communicator, const PlainPlan& plan, py::handle x, py::handle out) {
  const Converted converted(plan, x, out);
  RunNumbered(communicator, [&]() -> Status {
    if (converted.status.ok()) return plan.Run(&communicator, converted.tensors);
    static_cast<void>(communicator.Refuse(plan.operation(), converted.status));
    return converted.status;
  });
}

Status CheckCall(const Communicator& communicator, const PlainPlan& plan,
                 const Converted& converted) {
  RETURN_IF_ERROR(converted.status);
  return plan.Check(communicator, converted.tensors);
}

void Start(Starter& starter, const Plan& plan, const py::object& x, const py::object& out) {
  const Converted converted(*plan, x, out);
  const Status check = CheckCall(starter.communicator(), *plan, converted);
  if (!check.ok()) starter.Refuse(plan->operation(), check);
  ThrowIfError(check);
  starter.Keep(x, out, converted.held_x.owner, converted.held_out.owner);
  starter.Add(plan->operation(), [plan, tensors = converted.tensors](Communicator& communicator) {
    return plan->Run(&communicator, tensors);
  });
}

// Raises what the call would refuse; local.
void Check(const Communicator& communicator, const PlainPlan& plan, py::handle x, py::handle out) {
  ThrowIfError(CheckCall(communicator, plan, Converted(plan, x, out)));
}

void BindMakers(py::module_& module) {
  module
      .def("plan_gather", &GatherPlan, py::arg("method"), py::arg("operation"), py::arg("rank"),
           py::arg("rank_size"), py::arg("x"), py::arg("sizes"), py::arg("num_tensors") = 1,
           py::arg("one_shape") = false)
      .def("plan_scatter", &ScatterPlan, py::arg("method"), py::arg("operation"),
           py::arg("rank_size"), py::arg("x"), py::arg("sizes") = Rows(),
           py::arg("share") = "sizes", py::arg("root") = 0, py::arg("op") = 0)
      .def("plan_exchange", &ExchangePlan, py::arg("method"), py::arg("operation"),
           py::arg("rank_size"), py::arg("row"), py::arg("sends"), py::arg("receives"),
           py::arg("root") = 0, py::arg("sizes") = Rows())
      .def(
          "plan_all_reduce",
          [](int op) {
            return std::const_pointer_cast<PlainPlan>(PlanAllReduce(static_cast<ReduceOp>(op)));
          },
          py::arg("op"))
      .def(
          "plan_broadcast",
          [](int64_t root, const std::string& type, int rank_size) {
            return Made(
                [&](ConstPlan* plan) { return PlanBroadcast(root, type, rank_size, plan); });
          },
          py::arg("root"), py::arg("type"), py::arg("rank_size"))
      .def(
          "check_sizes",
          [](const std::string& method, const std::string& label, const Rows& sizes,
             int rank_size) {
            ThrowIfError(CheckSizes(method.c_str(), label.c_str(), sizes, rank_size));
          },
          py::arg("method"), py::arg("label"), py::arg("sizes"), py::arg("rank_size"))
      .def(
          "check_root",
          [](const std::string& method, int64_t root, int rank_size) {
            ThrowIfError(CheckRoot(method.c_str(), root, rank_size));
          },
          py::arg("method"), py::arg("root"), py::arg("rank_size"));
}

}  // namespace

void BindPlainPlans(py::module_& module,
                    py::class_<Communicator, std::shared_ptr<Communicator>>& communicator,
                    py::class_<Starter>& starter) {
  py::class_<PlainPlan, Plan>(module, "PlainPlan").def_property_readonly("rows", &PlainPlan::rows);
  BindMakers(module);
  communicator.def("run", &Run, py::arg("plan"), py::arg("x"), py::arg("out") = py::none())
      .def("check", &Check, py::arg("plan"), py::arg("x"), py::arg("out") = py::none());
  starter.def("run", &Start, py::arg("plan"), py::arg("x"), py::arg("out") = py::none())
      .def(
          "check",
          [](const Starter& self, const PlainPlan& plan, py::handle x, py::handle out) {
            Check(self.communicator(), plan, x, out);
          },
          py::arg("plan"), py::arg("x"), py::arg("out") = py::none());
}

}  // namespace collops::bindings
