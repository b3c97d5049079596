// What the core asks of this process's Python: signal handlers and the log; and its recordings.

#include <sys/syscall.h>
#include <unistd.h>

#include "collops/core/process/interrupt.h"
#include "collops/core/trace/log.h"
#include "collops/core/trace/recording.h"
#include "collops/core/trace/trace_file.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

// Python runs signal handlers in its main thread only.
bool InMainThread() {
  return syscall(SYS_gettid) == getpid();
}

// Runs Python's signal handlers. An exception that they raise stays pending until the wait has
// ended and ThrowIfError() finds it.
bool CheckSignals() {
  if (!InMainThread()) return false;
  const PyGILState_STATE state = NotUnwound([] { return PyGILState_Ensure(); });
  const bool interrupted = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return interrupted;
}

// Of Python: takes a level and a line, returns whether it was logged. Never destroyed: a thread may
// be using it when the interpreter ends. Guarded by the GIL.
py::object& Logger() {
  static auto* const logger = new py::object;
  return *logger;
}

// With the GIL. The handlers release it, so the interpreter may end meanwhile: no C++ object that
// owns one of Python's is here then.
bool LogWithGil(LogLevel level, const std::string& line) {
  PyObject* const logger = Logger().ptr();
  if (logger == nullptr) return false;
  Py_INCREF(logger);
  const auto size = static_cast<Py_ssize_t>(line.size());
  PyObject* const bytes = PyBytes_FromStringAndSize(line.data(), size);
  PyObject* const logged = NotUnwound(
      [&] { return PyObject_CallFunction(logger, "iO", static_cast<int>(level), bytes); });
  if (logged == nullptr) PyErr_WriteUnraisable(logger);
  const bool is_logged = logged == Py_True;
  Py_XDECREF(logged);
  Py_XDECREF(bytes);
  Py_DECREF(logger);
  return is_logged;
}

// Called in any thread, which may have the GIL. A KeyboardInterrupt that has ended a wait may be
// pending: it stays so.
bool PassToPython(LogLevel level, const std::string& line) {
  const PyGILState_STATE state = NotUnwound([] { return PyGILState_Ensure(); });
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const bool logged = LogWithGil(level, line);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
  return logged;
}

void LogTo(const py::object& logger) {
  LogSinkSlot().store(logger.is_none() ? nullptr : &PassToPython, std::memory_order_release);
  Logger() = logger.is_none() ? py::object() : logger;
}

}  // namespace

void BindProcess(py::module_& module) {
  module.def(
      "watch_signals",
      [](bool on) {
        InterruptCheckSlot().store(on ? &CheckSignals : nullptr, std::memory_order_release);
      },
      py::arg("on"));
  module.def("log_to", &LogTo, py::arg("logger"));
  module.def(
      "start_recording",
      [](const std::string& path) {
        RunWithoutGil([&] { return StartRecording(path, "trace.start"); });
      },
      py::arg("path"));
  module.def("trace_folder_fault", &recording::FolderFault, py::arg("path"));
  module.def("stop_recording", [] { RunWithoutGil([] { return StopRecording(); }); });
}

}  // namespace collops::bindings
