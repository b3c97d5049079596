#pragma once

#include <map>
#include <mutex>
#include <vector>

namespace collops::cuda {

// Handles of a process that nobody uses for the moment, by device. They are used again and not
// destroyed, where that waits for kernels or where nothing of CUDA may be called. Thread-safe.
template <class Handle>
class FreeList {
 public:
  // Null if there is none.
  Handle Take(int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Handle>& list = lists_[device];
    if (list.empty()) return nullptr;
    const Handle handle = list.back();
    list.pop_back();
    return handle;
  }

  void Give(int device, const std::vector<Handle>& handles) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Handle>& list = lists_[device];
    list.insert(list.end(), handles.begin(), handles.end());
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<Handle>> lists_;
};

}  // namespace collops::cuda
