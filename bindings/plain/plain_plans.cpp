#include "plain/plain_plans.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "collops/operators/plain/plans.h"
#include "plain/plain_call.h"
#include "tensors/tensor.h"
#include "workspace.h"

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
                 std::optional<Rows> sizes, const std::string& share, int64_t root, int op) {
  ScatterSpec spec{LastingName(method), LastingName(operation), ToRowShape(std::move(x)),
                   std::move(sizes)};
  if (share == "equal") spec.share = ScatterSpec::kEqual;
  if (share == "root") spec.share = ScatterSpec::kRoot;
  spec.root = root;
  spec.op = static_cast<ReduceOp>(op);
  return Made([&](ConstPlan* plan) { return PlanScatter(spec, rank_size, plan); });
}

Plan ExchangePlan(const std::string& method, const std::string& operation, int rank, int rank_size,
                  Whole x, Rows sends, Rows receives, Rows sizes, const std::string& share,
                  int64_t root) {
  ExchangeSpec spec{LastingName(method), LastingName(operation), ToRowShape(std::move(x)),
                    std::move(sends),    std::move(receives),    std::move(sizes)};
  if (share == "to root") spec.share = ExchangeSpec::kToRoot;
  if (share == "from root") spec.share = ExchangeSpec::kFromRoot;
  spec.root = root;
  return Made([&](ConstPlan* plan) { return PlanExchange(spec, rank, rank_size, plan); });
}

// The tensors of one call; of a call in place there is no out, and only products have more.
struct Converted {
  Converted(const char* method, py::handle x, py::handle out, py::handle weight = py::none(),
            py::handle residual = py::none()) {
    Take({method, "x", -1, nullptr}, x, &tensors.x);
    if (!weight.is_none()) {
      Take({method, "weight", -1, nullptr}, weight, &tensors.others.emplace_back());
    }
    if (!residual.is_none()) {
      Take({method, "residual", -1, nullptr}, residual, &tensors.others.emplace_back());
    }
    if (!out.is_none()) Take({method, "out", -1, nullptr}, out, &tensors.out);
    if (status.ok()) status = stream.Find(method, &tensors.stream);
  }

  void Take(const TensorName& name, py::handle object, PlainTensor* into) {
    if (!status.ok()) return;
    Tensor tensor;
    status = ToTensor(object, name, &tensor, &stream);
    *into = tensor;
    if (tensor.owner) owners.push_back(std::move(tensor.owner));
    if (into->view.desc.dtype == DType::kUndefined && !unnamed) unnamed = object;
  }

  // Takes the workspace that the plan needs on a device from the library that made x; its allocator
  // keeps it for what is on the call's stream.
  void TakeWorkspace(const Communicator& communicator, const PlainPlan& plan, py::handle x) {
    if (!status.ok() || tensors.stream == nullptr) return;
    const uint64_t bytes = plan.DeviceWorkspace(communicator, tensors);
    if (bytes == 0) return;
    Tensor memory;
    const Device& device = tensors.x.view.device;
    py::object room;
    status = DeviceMemory(x, device, bytes, plan.method(), tensors.stream, &room);
    if (!status.ok()) return;
    status = ToTensor(room, {plan.method(), "workspace", -1, nullptr}, &memory, &stream);
    tensors.workspace = memory.view.data;
    owners.push_back(room);
    if (memory.owner) owners.push_back(std::move(memory.owner));
  }

  // What the core says of them, with Python's word for an element type.
  Status Named(const Status& said) const { return unnamed ? NameElementType(said, unnamed) : said; }

  CallStream stream;
  std::vector<py::object> owners;
  PlainTensors tensors;
  py::handle unnamed;  // the first tensor whose element type the core has no name for
  Status status;
};

// What the call would refuse; local.
Status CheckCall(const Communicator& communicator, const PlainPlan& plan,
                 const Converted& converted) {
  COLLOPS_RETURN_IF_ERROR(converted.status);
  return converted.Named(plan.Check(communicator, converted.tensors));
}

void Run(Communicator& communicator, const PlainPlan& plan, py::handle x, py::handle out,
         py::handle weight, py::handle residual) {
  Converted converted(plan.method(), x, out, weight, residual);
  if (converted.unnamed) converted.status = CheckCall(communicator, plan, converted);
  converted.TakeWorkspace(communicator, plan, x);
  RunNumbered(communicator, [&]() -> Status {
    if (converted.status.ok()) return plan.Run(&communicator, converted.tensors);
    static_cast<void>(communicator.Refuse(plan.method(), converted.status));
    return converted.status;
  });
}

void Start(Starter& starter, const Plan& plan, const py::object& x, const py::object& out) {
  Converted converted(plan->method(), x, out);
  Status check = CheckCall(starter.communicator(), *plan, converted);
  if (check.ok()) {
    converted.TakeWorkspace(starter.communicator(), *plan, x);
    check = converted.status;
  }
  if (!check.ok()) starter.Refuse(plan->method(), check);
  ThrowIfError(check);
  starter.Keep(x, out);
  for (const py::object& owner : converted.owners) starter.Keep(owner);
  starter.Add(plan->method(), [plan, tensors = converted.tensors](Communicator& communicator) {
    return plan->Run(&communicator, tensors);
  });
}

void Check(const Communicator& communicator, const PlainPlan& plan, py::handle x, py::handle out) {
  const Converted converted(plan.method(), x, out);
  ThrowIfError(CheckCall(communicator, plan, converted));
}

Plan ProductPlan(std::shared_ptr<Communicator> communicator, py::handle x, py::handle weight,
                 py::handle residual, std::string method, int64_t ag_dim, int64_t rs_dim,
                 bool inner_dim_is_ag, std::optional<Rows> gather_rows,
                 std::optional<Rows> scatter_rows, bool trans_weight, bool averages) {
  const Converted inputs(method.c_str(), x, py::none(), weight, residual);
  ThrowIfError(inputs.status);
  std::vector<TensorDesc> descs = {inputs.tensors.x.view.desc};
  for (const PlainTensor& other : inputs.tensors.others) descs.push_back(other.view.desc);
  const ProductSpec spec{
      std::move(method),       ag_dim,       rs_dim,  inner_dim_is_ag, std::move(gather_rows),
      std::move(scatter_rows), trans_weight, averages};
  Status status;
  ConstPlan plan;
  RunWithoutGil([&] {
    status = PlanProduct(spec, descs, std::move(communicator), &plan);
    return Ok();
  });
  ThrowIfError(inputs.Named(status));
  return std::const_pointer_cast<PlainPlan>(plan);
}

void BindMakers(py::module_& module) {
  module
      .def("plan_gather", &GatherPlan, py::arg("method"), py::arg("operation"), py::arg("rank"),
           py::arg("rank_size"), py::arg("x"), py::arg("sizes"), py::arg("num_tensors") = 1,
           py::arg("one_shape") = false)
      .def("plan_scatter", &ScatterPlan, py::arg("method"), py::arg("operation"),
           py::arg("rank_size"), py::arg("x"), py::arg("sizes") = py::none(),
           py::arg("share") = "sizes", py::arg("root") = 0, py::arg("op") = 0)
      .def("plan_exchange", &ExchangePlan, py::arg("method"), py::arg("operation"), py::arg("rank"),
           py::arg("rank_size"), py::arg("x"), py::arg("sends") = Rows(),
           py::arg("receives") = Rows(), py::arg("sizes") = Rows(), py::arg("share") = "each",
           py::arg("root") = 0)
      .def("plan_product", &ProductPlan, py::arg("communicator"), py::arg("x"), py::arg("weight"),
           py::arg("residual"), py::arg("method"), py::arg("ag_dim"), py::arg("rs_dim"),
           py::arg("inner_dim_is_ag"), py::arg("gather_rows"), py::arg("scatter_rows"),
           py::arg("trans_weight"), py::arg("averages"))
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
          [](const std::string& method, const std::string& label, const Rows& sizes, int rank_size,
             std::optional<int64_t> rows) {
            ThrowIfError(CheckSizes(method.c_str(), label.c_str(), sizes, rank_size));
            if (!rows) return;
            RowShape x;
            x.sizes = {*rows};
            ThrowIfError(CheckSum(method.c_str(), label.c_str(), sizes, x));
          },
          py::arg("method"), py::arg("label"), py::arg("sizes"), py::arg("rank_size"),
          py::arg("rows") = py::none())
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
  py::class_<PlainPlan, Plan>(module, "PlainPlan")
      .def_property_readonly("rows", &PlainPlan::rows)
      .def_property_readonly("output_shape", &PlainPlan::output_shape);
  BindMakers(module);
  communicator
      .def("run", &Run, py::arg("plan"), py::arg("x"), py::arg("out") = py::none(),
           py::arg("weight") = py::none(), py::arg("residual") = py::none())
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
