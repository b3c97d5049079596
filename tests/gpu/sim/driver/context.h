#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "driver/report.h"
#include "sim/stream.h"

namespace collops_sim {

// Real GPUs run several kernels' blocks on 100 multiprocessors and more; few find more mistakes.
constexpr int kMultiprocessors = 8;
constexpr int kBlocksPerMultiprocessor = 1;
constexpr int kMostBlocksAtOnce = kMultiprocessors * kBlocksPerMultiprocessor;

// A device's primary context. There are no others. After a kernel's error every call answers it.
struct Context : Home {
  std::atomic<int> retained{0};
  std::atomic<int> waiting{0};  // kernels that run and have waited for a signal, or in NCCL
  std::atomic<int64_t> waiting_threads{0};  // of their grids
  std::mutex peers_mutex;
  std::set<int> peers;  // devices whose memory its kernels may use
  std::mutex loading;   // held while a module is loaded: all other calls of the context wait
  std::set<std::string> loaded;
};

int NumDevices();
Context* PrimaryOf(int device);
// Null for a handle that is none of ours.
Context* FindContext(void* handle);
// This thread's, or null.
Context* CurrentContext();
// Device access between these: COLLOPS_SIM_NO_PEERS=1 takes it away, and "0-2,1-3" between pairs.
bool CanAccessPeer(int device, int peer);

// What a call needs before it does anything.
enum Need : unsigned {
  kNeedsInit = 1,
  kNeedsContext = 2,  // a current one, in which no kernel has failed
  kIsUnsafe = 4,      // not allowed while a stream is captured, see CaptureForbids()
  kMayWait = 8,       // for kernels: while one waits for a signal, both may wait forever
};

// The first use of a library's kernel in a context, by a name for it: its module is loaded, which
// waits until nothing runs on the GPU, while all other calls of the context wait for it.
void LoadOnce(Context* context, const std::string& kernel);

// Begins every function of libcuda: kSuccess, or its answer.
Result Enter(const char* function, unsigned needs);
// A name for errors, from the last Enter() of this thread.
const char* EnteredFunction();

// While it lives this thread runs a callback, in which CUDA may not be called.
class CallbackScope {
 public:
  CallbackScope();
  ~CallbackScope();
};

}  // namespace collops_sim
