#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "communicator.h"

// What every call of HCCL looks at before it puts anything on a stream.
namespace collops_sim {

// Whether a function runs at all: COLLOPS_SIM_FAIL, COLLOPS_SIM_WITHOUT and the SoC may say no.
int MayRun(const char* function);

// The live communicators of this process.
Communicator* Find(void* handle);
Communicator* Keep(Communicator* communicator);
bool Forget(Communicator* communicator);
int NumLive();
// The first for which `matches` is true, or null.
Communicator* FindWhere(const std::function<bool(const Communicator&)>& matches);
// kSuccess if this thread's device is the one for which the communicator was made.
int CheckDevice(const Communicator& communicator);

// The blocks of a list, and the elements up to the end of the last one that has any.
std::vector<Block> BlocksOf(void* data, size_t element, const std::vector<uint64_t>& counts,
                            const std::vector<uint64_t>& displs);
uint64_t ExtentOf(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& displs);

struct Span {
  const void* data;
  uint64_t count;  // in elements
};

// A call that is being checked; the first thing that is wrong decides.
class Request {
 public:
  Request(const char* function, void* comm, void* stream);

  int code() const { return code_; }
  Communicator* comm() const { return communicator_; }
  size_t size() const { return static_cast<size_t>(communicator_->size()); }
  size_t rank() const { return static_cast<size_t>(communicator_->rank()); }

  // Each returns whether all is right so far.
  bool NeedCopied(int type);  // any type that HCCL documents for an Ascend910B
  bool NeedReduced(int type, int reduction);
  bool NeedCount(uint64_t count);
  bool NeedCounts(const std::vector<uint64_t>& counts);
  bool NeedList(const void* list);
  bool NeedRank(uint32_t rank);
  bool NeedMemory(const char* name, Span span, int type);
  // Buffers may not overlap, but the input may lie at `place`.
  bool NeedApart(Span input, Span output, int type, const void* place);
  bool Refuse(int code, const std::string& text);

  // Puts the call on the stream, unless something was wrong.
  int Start(Call call, Span input, Span output);

 private:
  const char* const function_;
  Communicator* communicator_;
  Stream* stream_;
  int code_;
};

}  // namespace collops_sim
