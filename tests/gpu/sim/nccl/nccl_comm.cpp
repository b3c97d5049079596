// Communicators of a simulated libnccl, from its published signatures.
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "collops/kernels/cuda/driver.h"
#include "driver/context.h"
#include "nccl/group.h"

using namespace collops_sim;

namespace {

constexpr size_t kIdBytes = 128;
constexpr uint32_t kMagic = 0xcafebeef;
constexpr size_t kOldestConfig = 24;  // with `blocking` and two fields more

struct UniqueId {
  char bytes[kIdBytes];
};

// How every ncclConfig_t begins.
struct Config {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t blocking;
};

std::mutex text_mutex;
std::string& LastText() {
  static auto* const text = new std::string;
  return *text;
}

// CUDA's runtime takes device 0 for a thread that has chosen none.
int DeviceHere() {
  const Context* context = CurrentContext();
  return context == nullptr ? 0 : context->device;
}

Nccl ReadConfig(const Config* config, bool* blocks) {
  *blocks = true;
  if (config == nullptr) return Nccl::kSuccess;
  if (config->size < kOldestConfig || config->magic != kMagic) {
    return RefuseNccl(Nccl::kInvalidArgument, "the config was not initialised");
  }
  if (config->blocking != 0 && config->blocking != 1 && config->blocking != INT_MIN) {
    return RefuseNccl(Nccl::kInvalidArgument, "config.blocking is 0 or 1");
  }
  *blocks = config->blocking != 0;
  return Nccl::kSuccess;
}

// Rank 0 of the parent hears what every rank wants, and tells all of it.
struct Wish {
  int32_t color;
  int32_t key;
  int32_t device;
  char root[64];
};

Nccl Split(Comm* parent, int color, int key, const std::shared_ptr<Comm>& part) {
  const size_t size = static_cast<size_t>(parent->size());
  std::vector<Wish> wishes(size);
  Wish mine{color, key, parent->device(), {}};
  // Each rank opens a root; the first of its color's is taken.
  OpenRoot("", TimeoutS()).copy(mine.root, sizeof(mine.root) - 1);
  Mesh& mesh = parent->mesh();
  bool heard = true;
  for (int r = 0; r < parent->size() && heard; ++r) {
    if (r != parent->rank()) heard = mesh.Tell(kHosts, r, &mine, sizeof(mine), TimeoutS());
  }
  for (int r = 0; r < parent->size() && heard; ++r) {
    Wish& wish = wishes[static_cast<size_t>(r)];
    if (r != parent->rank()) heard = mesh.Hear(kHosts, r, &wish, sizeof(wish), TimeoutS());
  }
  if (!heard) return RefuseNccl(Nccl::kSystemError, "a rank has not come to ncclCommSplit");
  wishes[static_cast<size_t>(parent->rank())] = mine;
  if (part == nullptr) return Nccl::kSuccess;
  int rank = 0;
  int members = 0;
  const char* root = nullptr;
  for (int r = 0; r < parent->size(); ++r) {
    const Wish& wish = wishes[static_cast<size_t>(r)];
    if (wish.color != color) continue;
    if (root == nullptr) root = wish.root;
    ++members;
    if (wish.key < key || (wish.key == key && r < parent->rank())) ++rank;
  }
  part->SetPlace(rank, members);
  return part->Meet(root);
}

Nccl WithComm(const char* function, void* handle, std::shared_ptr<Comm>* comm) {
  const int planned = PlannedFailure(function);
  if (planned != 0) return static_cast<Nccl>(planned);
  *comm = FindComm(handle);
  if (*comm != nullptr) return Nccl::kSuccess;
  return RefuseNccl(Nccl::kInvalidArgument, std::string(function) + ": no such communicator");
}

}  // namespace

namespace collops_sim {

Nccl RefuseNccl(Nccl result, const std::string& text) {
  const std::lock_guard<std::mutex> lock(text_mutex);
  LastText() = text;
  return result;
}

}  // namespace collops_sim

extern "C" {

Nccl ncclGetVersion(int* version) {
  const char* text = std::getenv("COLLOPS_SIM_NCCL");
  *version = text == nullptr ? 23007 : std::atoi(text);
  return Nccl::kSuccess;
}
const char* ncclGetErrorString(Nccl result) {
  switch (result) {
    case Nccl::kSuccess:
      return "no error";
    case Nccl::kUnhandledCudaError:
      return "unhandled cuda error";
    case Nccl::kSystemError:
      return "unhandled system error";
    case Nccl::kInternalError:
      return "internal error";
    case Nccl::kInvalidArgument:
      return "invalid argument";
    case Nccl::kInvalidUsage:
      return "invalid usage";
    case Nccl::kRemoteError:
      return "remote process exited or there was a network error";
    case Nccl::kInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(void*) {
  thread_local std::string handed_out;
  const std::lock_guard<std::mutex> lock(text_mutex);
  handed_out = LastText();
  return handed_out.c_str();
}

Nccl ncclGetUniqueId(UniqueId* id) {
  const int planned = PlannedFailure("ncclGetUniqueId");
  if (planned != 0) return static_cast<Nccl>(planned);
  const std::string root = OpenRoot("", TimeoutS());
  std::memset(id, 0, sizeof(*id));
  root.copy(id->bytes, kIdBytes - 1);
  return Nccl::kSuccess;
}
Nccl ncclCommInitRankConfig(void** comm, int size, UniqueId id, int rank, Config* config) {
  const int planned = PlannedFailure("ncclCommInitRankConfig");
  if (planned != 0) return static_cast<Nccl>(planned);
  bool blocks = true;
  const Nccl result = ReadConfig(config, &blocks);
  if (result != Nccl::kSuccess) return result;
  const std::string root(id.bytes, strnlen(id.bytes, kIdBytes));
  if (size < 1 || rank < 0 || rank >= size || root.empty()) {
    return RefuseNccl(Nccl::kInvalidArgument, "no such rank, or the unique id is empty");
  }
  const auto made = std::make_shared<Comm>(rank, size, DeviceHere(), blocks);
  *comm = made.get();
  return AddInit(made, [made, root] { return made->Meet(root); });
}
Nccl ncclCommSplit(void* handle, int color, int key, void** made, Config* config) {
  std::shared_ptr<Comm> parent;
  bool blocks = true;
  Nccl result = WithComm("ncclCommSplit", handle, &parent);
  if (result == Nccl::kSuccess) result = ReadConfig(config, &blocks);
  if (result != Nccl::kSuccess) return result;
  if (parent->state() != Nccl::kSuccess) return Nccl::kInvalidUsage;
  std::shared_ptr<Comm> part;
  *made = nullptr;
  if (color >= 0) {
    part = std::make_shared<Comm>(0, 1, parent->device(),
                                  config == nullptr ? parent->blocks() : blocks);
    *made = part.get();
  }
  // A parent that does not block is in progress, too, until its part is made.
  if (parent->blocks()) {
    if (part == nullptr) return Split(parent.get(), color, key, part);
    return AddInit(part, [=] { return Split(parent.get(), color, key, part); });
  }
  parent->set_state(Nccl::kInProgress);
  const auto run = [=] {
    const Nccl split = Split(parent.get(), color, key, part);
    parent->set_state(split);
    return split;
  };
  return AddInit(part == nullptr ? parent : part, run);
}

Nccl ncclCommCount(void* handle, int* count) {
  std::shared_ptr<Comm> comm;
  const Nccl result = WithComm("ncclCommCount", handle, &comm);
  if (result == Nccl::kSuccess) *count = comm->size();
  return result;
}
Nccl ncclCommUserRank(void* handle, int* rank) {
  std::shared_ptr<Comm> comm;
  const Nccl result = WithComm("ncclCommUserRank", handle, &comm);
  if (result == Nccl::kSuccess) *rank = comm->rank();
  return result;
}
Nccl ncclCommCuDevice(void* handle, int* device) {
  std::shared_ptr<Comm> comm;
  const Nccl result = WithComm("ncclCommCuDevice", handle, &comm);
  if (result == Nccl::kSuccess) *device = comm->device();
  return result;
}
Nccl ncclCommGetAsyncError(void* handle, Nccl* error) {
  std::shared_ptr<Comm> comm;
  const Nccl result = WithComm("ncclCommGetAsyncError", handle, &comm);
  if (result == Nccl::kSuccess) *error = comm->state();
  return result;
}

Nccl ncclCommFinalize(void* handle) {
  std::shared_ptr<Comm> comm;
  const Nccl result = WithComm("ncclCommFinalize", handle, &comm);
  if (result != Nccl::kSuccess) return result;
  if (comm->Finish()) return Nccl::kSuccess;
  Mistake("NCCL: ncclCommFinalize waits for calls that do not end");
  return Nccl::kSystemError;
}
Nccl ncclCommDestroy(void* handle) {
  std::shared_ptr<Comm> comm;
  const Nccl result = WithComm("ncclCommDestroy", handle, &comm);
  if (result != Nccl::kSuccess) return result;
  if (!comm->Finish()) Mistake("NCCL: ncclCommDestroy waits for calls that do not end");
  comm->LetGo(true);
  comm->AwaitGraphs("ncclCommDestroy");
  ForgetComm(handle);
  return result;
}
Nccl ncclCommAbort(void* handle) {
  std::shared_ptr<Comm> comm;
  const Nccl result = WithComm("ncclCommAbort", handle, &comm);
  if (result != Nccl::kSuccess) return result;
  comm->Abort();
  comm->LetGo(false);
  comm->AwaitGraphs("ncclCommAbort");
  ForgetComm(handle);
  return result;
}

}  // extern "C"
