// Graphs and user objects of a simulated libcuda, from its published signatures.
#include <set>

#include "driver/capture.h"
#include "driver/memory.h"

namespace collops_sim {
namespace {

constexpr unsigned kCall = kNeedsInit | kNeedsContext;

// What cuGraphInstantiate makes: a copy of the graph. Its replays come one after the other.
struct Executable {
  explicit Executable(const Graph& from) : graph(from) {}

  Graph graph;
  std::vector<Stream*> lanes;  // behind lane 0, which is the stream of the replay
  std::shared_ptr<Mark> last;
};

struct Executables {
  std::mutex mutex;
  std::set<std::shared_ptr<Executable>> all;
};
Executables& GetExecutables() {
  static auto* const executables = new Executables;
  return *executables;
}

std::shared_ptr<Executable> Take(void* handle, bool removes) {
  Executables& executables = GetExecutables();
  const std::lock_guard<std::mutex> lock(executables.mutex);
  for (const auto& found : executables.all) {
    if (found.get() != handle) continue;
    auto kept = found;
    if (removes) executables.all.erase(found);
    return kept;
  }
  return nullptr;
}

Result Replay(const std::shared_ptr<Executable>& executable, Stream* stream) {
  const Graph& graph = executable->graph;
  for (size_t lane = executable->lanes.size() + 1; lane < graph.contexts.size(); ++lane) {
    executable->lanes.push_back(CreateStream(graph.contexts[lane], Stream::Order::kNonBlocking));
  }
  std::vector<std::shared_ptr<Mark>> marks;
  for (int i = 0; i < graph.num_records; ++i) marks.push_back(std::make_shared<Mark>());
  Result result = Result::kSuccess;
  if (executable->last != nullptr) {
    result = stream->Enqueue([mark = executable->last] { return mark->Wait(); }, {}, true);
  }
  for (const Graph::Node& node : graph.nodes) {
    if (result != Result::kSuccess) return result;
    Stream* where = node.lane == 0 ? stream : executable->lanes[static_cast<size_t>(node.lane - 1)];
    for (const void* address : node.used) {
      const auto number = reinterpret_cast<uintptr_t>(address);
      if (!IsDeviceAddress(number) || Find(number, 0).kind != Allocation::kNothing) continue;
      Mistake("a graph is replayed that uses memory which was freed");
      return Result::kInvalidValue;
    }
    if (node.record >= 0) {
      const auto mark = marks[static_cast<size_t>(node.record)];
      result = where->Enqueue([mark] { return mark->Reach(); });
    } else if (node.wait >= 0) {
      const auto mark = marks[static_cast<size_t>(node.wait)];
      result = where->Enqueue([mark] { return mark->Wait(); }, {}, true);
    } else {
      result = node.launch(where);
    }
  }
  executable->last = std::make_shared<Mark>();
  // The replay keeps the executable, and so its user objects, until it has ended.
  return stream->Enqueue([mark = executable->last, executable] { return mark->Reach(); });
}

}  // namespace

void ReleaseUserObject(UserObject* object, unsigned count) {
  {
    const std::lock_guard<std::mutex> lock(CaptureMutex());
    object->references -= std::min(count, object->references);
    if (object->references > 0) return;
  }
  const CallbackScope scope;
  object->destroy(object->pointer);
  delete object;
}

Graph::Graph(const Graph& other)
    : nodes(other.nodes),
      contexts(other.contexts),
      num_records(other.num_records),
      objects(other.objects) {
  for (auto& [object, count] : objects) object->references += count;
}

Graph::~Graph() {
  for (auto& [object, count] : objects) ReleaseUserObject(object, count);
}

}  // namespace collops_sim

using namespace collops_sim;

extern "C" {

Result cuGraphDestroy(void* graph) {
  const Result result = Enter("cuGraphDestroy", kNeedsInit);
  if (result == Result::kSuccess) delete static_cast<Graph*>(graph);
  return result;
}
Result cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  const Result result = Enter("cuGraphInstantiateWithFlags", kCall | kMayWait);
  if (result != Result::kSuccess) return result;
  std::shared_ptr<Executable> made;
  {
    const std::lock_guard<std::mutex> lock(CaptureMutex());
    made = std::make_shared<Executable>(*static_cast<Graph*>(graph));
  }
  Executables& executables = GetExecutables();
  const std::lock_guard<std::mutex> lock(executables.mutex);
  executables.all.insert(made);
  *executable = made.get();
  return result;
}
Result cuGraphLaunch(void* handle, void* stream_handle) {
  Stream* stream = nullptr;
  Result result = Enter("cuGraphLaunch", kCall);
  if (result == Result::kSuccess) result = FindHere(stream_handle, &stream);
  if (result != Result::kSuccess) return result;
  const std::shared_ptr<Executable> executable = Take(handle, false);
  if (executable == nullptr) return Refuse(Result::kInvalidValue, "there is no such graph");
  if (stream->IsCapturing()) return RefuseInCapture(stream, "cuGraphLaunch in this simulation");
  return Replay(executable, stream);
}
Result cuGraphExecDestroy(void* handle) {
  const Result result = Enter("cuGraphExecDestroy", kNeedsInit);
  if (result != Result::kSuccess) return result;
  return Take(handle, true) != nullptr ? result
                                       : Refuse(Result::kInvalidValue, "there is no such graph");
}

Result cuUserObjectCreate(void** object, void* pointer, void (*destroy)(void*),
                          unsigned int references, unsigned int flags) {
  const Result result = Enter("cuUserObjectCreate", kNeedsInit);
  if (result != Result::kSuccess) return result;
  if (destroy == nullptr || references == 0 ||
      flags != collops::cuda::kUserObjectNoDestructorSync) {
    return Refuse(Result::kInvalidValue, "a user object needs a destructor, references and flags");
  }
  *object = new UserObject{destroy, pointer, references};
  return result;
}
Result cuUserObjectRelease(void* object, unsigned int count) {
  const Result result = Enter("cuUserObjectRelease", kNeedsInit);
  if (result == Result::kSuccess) ReleaseUserObject(static_cast<UserObject*>(object), count);
  return result;
}
Result cuGraphRetainUserObject(void* graph, void* handle, unsigned int count, unsigned int flags) {
  const Result result = Enter("cuGraphRetainUserObject", kNeedsInit);
  if (result != Result::kSuccess) return result;
  auto* const object = static_cast<UserObject*>(handle);
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  if (flags != collops::cuda::kGraphUserObjectMove) object->references += count;
  static_cast<Graph*>(graph)->objects.push_back({object, count});
  return result;
}

}  // extern "C"
