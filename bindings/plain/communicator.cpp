#include "collops/comm/communicator.h"

#include <pybind11/stl.h>

#include "module.h"
#include "plain/messages.h"
#include "plain/plain_call.h"
#include "plain/plain_plans.h"
#include "plain/repeated_call.h"
#include "plain/row_exchange.h"
#include "status.h"
#include "tensors/call_stream.h"

namespace collops::bindings {
namespace {

void Refuse(Communicator& communicator, const std::string& operation, int code,
            const std::string& message) {
  const char* name = MethodOf(operation);
  RunNumbered(communicator, [&] {
    return communicator.Refuse(name, Status(static_cast<ErrorCode>(code), message));
  });
}

// None for a rank whose color is negative. Returns once every rank of the part is there.
std::shared_ptr<Communicator> Split(Communicator& communicator, int color, int key) {
  std::shared_ptr<Communicator> part;
  RunNumbered(communicator, [&] {
    COLLOPS_RETURN_IF_ERROR(communicator.Split(color, key, &part));
    return part == nullptr ? Ok() : part->Connect();
  });
  return part;
}

// The stream that a barrier joins, with the streams of the other ranks.
void* BarrierStream(const Communicator& communicator) {
  void* stream = nullptr;
  ThrowIfError(CurrentStream(communicator.device(), "barrier", &stream));
  return stream;
}

void BindCalls(py::class_<Communicator, std::shared_ptr<Communicator>>& bound) {
  bound.def("split", &Split, py::arg("color"), py::arg("key"))
      .def("barrier",
           [](Communicator& self) {
             void* const stream = BarrierStream(self);
             RunNumbered(self, [&] { return self.Barrier(stream); });
           })
      .def(
          "in_parts", [](Communicator& self, int parts) { BeginParts(self, parts); },
          py::arg("parts"))
      .def("refuse", &Refuse, py::arg("operation"), py::arg("code"), py::arg("message"))
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
}

// The same calls of a communicator that starts them.
void BindStartedCalls(py::class_<Starter>& bound) {
  bound
      .def(
          "in_parts", [](Starter& self, int parts) { BeginParts(self.communicator(), parts); },
          py::arg("parts"))
      .def("barrier",
           [](Starter& self) {
             void* const stream = BarrierStream(self.communicator());
             self.Add("barrier", [stream](Communicator& communicator) {
               return communicator.Barrier(stream);
             });
           })
      .def(
          "refuse",
          [](Starter& self, const std::string& operation, int code, const std::string& message) {
            self.Refuse(MethodOf(operation), Status(static_cast<ErrorCode>(code), message));
          },
          py::arg("operation"), py::arg("code"), py::arg("message"));
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
          "handle", [](const Communicator& self) { return reinterpret_cast<uintptr_t>(&self); });
  BindCalls(bound);
  BindRowExchange(module, bound);
  py::class_<Starter> starter(module, "Starter");
  starter
      .def_property_readonly("rank", [](const Starter& self) { return self.communicator().rank(); })
      .def_property_readonly("size", [](const Starter& self) { return self.communicator().size(); })
      .def_property_readonly(
          "device", [](const Starter& self) { return ToString(self.communicator().device()); });
  BindStarted(module, starter);
  BindStartedCalls(starter);
  BindMessages(bound, starter);
  BindPlainPlans(module, bound, starter);
  BindRepeatedCall(module);
}

}  // namespace collops::bindings
