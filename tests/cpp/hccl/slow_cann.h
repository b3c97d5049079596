// CANN with streams that run when a test says so. A call reads its counts and displacements as late
// as possible: when its stream runs it. Calls on a captured stream go into a graph.
#ifndef COLLOPS_TESTS_CPP_SLOW_CANN_H_
#define COLLOPS_TESTS_CPP_SLOW_CANN_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "check.h"
#include "collops/comm/backends/hccl/library.h"

namespace slow_cann {

using Task = std::function<void()>;

struct SlowGraph {
  std::vector<Task> tasks;
  collops::hccl::Callback on_destroyed = nullptr;
  void* user_data = nullptr;
};

struct SlowStream {
  std::deque<Task> tasks;
  SlowGraph* captured_into = nullptr;

  void Add(Task task) {
    if (captured_into != nullptr) return captured_into->tasks.push_back(std::move(task));
    tasks.push_back(std::move(task));
  }
  void RunAll() {
    for (; !tasks.empty(); tasks.pop_front()) tasks.front()();
  }
};

struct SlowEvent {
  bool is_reached = false;
};

// What a call has read when its stream ran it.
struct Read {
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

inline int rank_size = 0;
inline std::vector<Read> reads;
inline std::list<SlowEvent> events;
inline std::function<void()> on_query;      // called while an event is queried
inline std::atomic<int> num_destroyed{0};   // number of communicators
inline thread_local int32_t npu = 0;        // the thread's; -1: none is chosen
inline std::vector<int32_t> npus_of_calls;  // on which HCCL's functions were called

inline void NoteNpu() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  npus_of_calls.push_back(npu);
}
inline collops::hccl::Result answer = collops::hccl::Result::kSuccess;

inline void ReadLater(const void* counts, const void* displs, void* stream) {
  static_cast<SlowStream*>(stream)->Add([counts, displs] {
    const auto* first = static_cast<const int64_t*>(counts);
    const auto* second = static_cast<const int64_t*>(displs);
    reads.push_back({{first, first + rank_size}, {second, second + rank_size}});
  });
}

inline void Destroy(SlowGraph* graph) {
  if (graph->on_destroyed != nullptr) graph->on_destroyed(graph->user_data);
  *graph = {};
}

inline void FillEvents(collops::hccl::Api* api) {
  using namespace collops::hccl;
  api->create_event = [](Event* event) {
    static std::mutex mutex;  // ranks are threads
    const std::lock_guard<std::mutex> lock(mutex);
    *event = &events.emplace_back();
    return AclError{0};
  };
  api->destroy_event = [](Event) { return AclError{0}; };
  api->record_event = [](Event event, Stream stream) {
    auto* const slow = static_cast<SlowEvent*>(event);
    slow->is_reached = false;
    static_cast<SlowStream*>(stream)->Add([slow] { slow->is_reached = true; });
    return AclError{0};
  };
  api->query_event_status = [](Event event, EventStatus* status) {
    if (on_query) on_query();
    const bool is_reached = static_cast<SlowEvent*>(event)->is_reached;
    *status = is_reached ? EventStatus::kComplete : EventStatus::kNotReady;
    return AclError{0};
  };
  api->capture_get_info = [](Stream stream, CaptureStatus* status, Graph* graph) {
    *graph = static_cast<SlowStream*>(stream)->captured_into;
    *status = *graph == nullptr ? CaptureStatus::kNone : CaptureStatus::kActive;
    return AclError{0};
  };
  api->on_graph_destroyed = [](Graph graph, Callback function, void* user_data) {
    auto* const slow = static_cast<SlowGraph*>(graph);
    EXPECT_TRUE(slow->on_destroyed == nullptr);
    slow->on_destroyed = function;
    slow->user_data = user_data;
    return AclError{0};
  };
}

inline const collops::hccl::Api& GetApi() {
  using namespace collops::hccl;
  static const Api* const api = [] {
    static auto* const made = new Api{};
    FillEvents(made);
    made->get_device = [](int32_t* device) {
      constexpr AclError kNoContext = 107002;
      *device = npu;
      return npu < 0 ? kNoContext : AclError{0};
    };
    made->set_device = [](int32_t device) {
      npu = device;
      return AclError{0};
    };
    made->get_soc_name = []() -> const char* { return "Ascend910B1"; };
    made->malloc = [](void** address, size_t, AllocationPolicy) {
      static char memory = 0;
      *address = &memory;
      return AclError{0};
    };
    made->free = [](void*) { return AclError{0}; };
    made->get_recent_error = []() -> const char* { return nullptr; };
    made->get_comm_async_error = [](Comm, Result* error) {
      *error = Result::kSuccess;
      return Result::kSuccess;
    };
    made->get_root_info = [](RootInfo* root_info) {
      *root_info = {};
      return Result::kSuccess;
    };
    made->comm_init_root_info = [](uint32_t, const RootInfo*, uint32_t, Comm* comm) {
      *comm = made;
      NoteNpu();
      return Result::kSuccess;
    };
    made->comm_destroy = [](Comm) {
      ++num_destroyed;
      NoteNpu();
      return Result::kSuccess;
    };
    made->memset_async = [](void*, size_t, int32_t, size_t, Stream) { return AclError{0}; };
    made->all_gather = [](void*, void*, uint64_t, DataType, Comm, Stream) {
      NoteNpu();
      return answer;
    };
    made->all_gather_v = [](void*, uint64_t, void*, const void* counts, const void* displs,
                            DataType, Comm, Stream stream) {
      NoteNpu();
      ReadLater(counts, displs, stream);
      return answer;
    };
    return made;
  }();
  return *api;
}

}  // namespace slow_cann

#endif  // COLLOPS_TESTS_CPP_SLOW_CANN_H_
