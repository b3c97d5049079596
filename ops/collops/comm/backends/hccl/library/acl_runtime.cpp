#include "collops/comm/backends/hccl/library/acl_runtime.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/library/error.h"
#include "collops/core/process/per_process.h"

namespace collops::hccl {
namespace {

using Held = std::vector<std::shared_ptr<const void>>;

// What each captured graph keeps alive. Never destroyed: a graph may outlive main().
struct Graphs {
  std::mutex mutex;
  std::map<Graph, Held> held;
};

PerProcess<Graphs> graphs_here;

void LetGo(void* graph) {
  Held held;  // destroyed without the lock
  Graphs& graphs = graphs_here.Get();
  const std::lock_guard<std::mutex> lock(graphs.mutex);
  const auto found = graphs.held.find(graph);
  if (found == graphs.held.end()) return;
  held.swap(found->second);
  graphs.held.erase(found);
}

}  // namespace

Status CreateEvent(const Api& api, Event* event) {
  if (api.create_event_ex == nullptr) {
    return ToStatus(api, api.create_event(event), "aclrtCreateEvent");
  }
  return ToStatus(api, api.create_event_ex(event, kEventFlags), "aclrtCreateEventExWithFlag");
}

Status AclRuntime::CreateEvent(Event* event) {
  return hccl::CreateEvent(api_, event);
}

Status AclRuntime::RecordEvent(Event event, Stream stream) {
  return ToStatus(api_, api_.record_event(event, stream), "aclrtRecordEvent");
}

kernels::DeviceRuntime::Progress AclRuntime::QueryEvent(Event event) {
  EventStatus status = EventStatus::kNotReady;
  if (api_.query_event_status(event, &status) != 0) return Progress::kUnknown;
  return status == EventStatus::kComplete ? Progress::kReached : Progress::kAhead;
}

// The caller cannot act on an error of this call.
void AclRuntime::DestroyEvent(Event event) {
  static_cast<void>(api_.destroy_event(event));
}

Status AclRuntime::FindGraph(Stream stream, Graph* graph) {
  *graph = nullptr;
  if (api_.capture_get_info == nullptr) return Ok();
  CaptureStatus status = CaptureStatus::kNone;
  Graph found = nullptr;
  const AclError error = api_.capture_get_info(stream, &status, &found);
  if (error == kAclNotSupported) return Ok();
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, error, "aclmdlRICaptureGetInfo"));
  if (status != CaptureStatus::kNone) *graph = found;
  return Ok();
}

// The runtime takes one callback per graph, so it is registered with the first object that a graph
// keeps alive, without the lock, which the callback takes. If the runtime refuses the callback, the
// graph's entry stays.
void AclRuntime::KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) {
  bool is_first = false;
  {
    Graphs& graphs = graphs_here.Get();
    const std::lock_guard<std::mutex> lock(graphs.mutex);
    Held& held = graphs.held[graph];
    is_first = held.empty();
    held.push_back(std::move(kept));
  }
  if (!is_first || api_.on_graph_destroyed == nullptr) return;
  static_cast<void>(api_.on_graph_destroyed(graph, LetGo, graph));
}

}  // namespace collops::hccl
