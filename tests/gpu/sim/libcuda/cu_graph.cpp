// Graphs and user objects of a simulated libcuda, from its published signatures.
#include <algorithm>
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

bool IsFreed(const void* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  return IsDeviceAddress(number) && Find(number, 0).kind == Allocation::kNothing;
}

Result Replay(const std::shared_ptr<Executable>& executable, Stream* stream) {
  for (const Graph::Node& node : executable->graph.nodes) {
    if (std::none_of(node.used.begin(), node.used.end(), IsFreed)) continue;
    Mistake("a graph is replayed that uses memory which was freed");
    return kInvalidValue;
  }
  Result result = Result::kSuccess;
  if (executable->last != nullptr) {
    result = stream->Enqueue([mark = executable->last] { return mark->Wait(); }, {}, true);
  }
  if (result == Result::kSuccess) result = executable->graph.Replay(stream);
  if (result != Result::kSuccess) return result;
  executable->last = std::make_shared<Mark>();
  // The replay keeps the executable, and so its user objects, until it has ended.
  return stream->Enqueue([mark = executable->last, executable] { return mark->Reach(); });
}

// Shared by the graphs that hold it; `destroy` runs when the last one lets it go.
struct UserObject {
  void (*destroy)(void*) = nullptr;
  void* pointer = nullptr;
  unsigned references = 0;
};

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

}  // namespace

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
  if (executable == nullptr) return Refuse(kInvalidValue, "there is no such graph");
  if (stream->IsCapturing()) return RefuseInCapture(stream, "cuGraphLaunch in this simulation");
  return Replay(executable, stream);
}
Result cuGraphExecDestroy(void* handle) {
  const Result result = Enter("cuGraphExecDestroy", kNeedsInit);
  if (result != Result::kSuccess) return result;
  return Take(handle, true) != nullptr ? result : Refuse(kInvalidValue, "there is no such graph");
}

Result cuUserObjectCreate(void** object, void* pointer, void (*destroy)(void*),
                          unsigned int references, unsigned int flags) {
  const Result result = Enter("cuUserObjectCreate", kNeedsInit);
  if (result != Result::kSuccess) return result;
  if (destroy == nullptr || references == 0 ||
      flags != collops::cuda::kUserObjectNoDestructorSync) {
    return Refuse(kInvalidValue, "a user object needs a destructor, references and flags");
  }
  *object = new UserObject{destroy, pointer, references};
  return result;
}
Result cuGraphRetainUserObject(void* graph, void* handle, unsigned int count, unsigned int flags) {
  const Result result = Enter("cuGraphRetainUserObject", kNeedsInit);
  if (result != Result::kSuccess) return result;
  auto* const object = static_cast<UserObject*>(handle);
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  if (flags != collops::cuda::kGraphUserObjectMove) object->references += count;
  const auto release = [count](UserObject* kept) { ReleaseUserObject(kept, count); };
  static_cast<Graph*>(graph)->kept.push_back(std::shared_ptr<UserObject>(object, release));
  return result;
}

}  // extern "C"
