#include "collops/comm/backends/nccl/comm_handle.h"

#include <chrono>
#include <thread>

#include "collops/comm/backends/nccl/library/error.h"

namespace collops::nccl {
namespace {

// How long a wait sleeps between two looks.
constexpr std::chrono::microseconds kLook(50);
// How long ncclCommAbort is waited for.
constexpr std::chrono::seconds kAborts(2);

}  // namespace

Config CommHandle::OurConfig() {
  Config config = {};
  config.size = sizeof(Config);
  config.magic = kConfigMagic;
  config.version = kConfigVersion;
  config.blocking = 0;
  for (int32_t* field : {&config.cga_cluster_size, &config.min_ctas, &config.max_ctas,
                         &config.split_share, &config.traffic_class, &config.collnet_enable,
                         &config.cta_policy, &config.shrink_share, &config.nvls_ctas}) {
    *field = kConfigNotSet;
  }
  return config;
}

Status CommHandle::FromUniqueId(const Api& api, int rank, int rank_size, const UniqueId& id,
                                const MayWait& may_wait, std::shared_ptr<CommHandle>* handle) {
  constexpr const char* kCall = "ncclCommInitRankConfig";
  Config config = OurConfig();
  Comm made = nullptr;
  const Result result = api.comm_init_rank_config(&made, rank_size, id, rank, &config);
  if (made == nullptr) return ToStatus(api, result, kCall);
  std::shared_ptr<CommHandle> whole(new CommHandle(api, made, true));
  COLLOPS_RETURN_IF_ERROR(whole->Settle(result, kCall, may_wait));
  *handle = std::move(whole);
  return Ok();
}

std::shared_ptr<CommHandle> CommHandle::OfCaller(const Api& api, Comm comm) {
  return std::shared_ptr<CommHandle>(new CommHandle(api, comm, false));
}

Status CommHandle::Split(int color, int key, const MayWait& may_wait,
                         std::shared_ptr<CommHandle>* part) {
  constexpr const char* kCall = "ncclCommSplit";
  COLLOPS_CHECK_ARG(!aborted_, ERROR_ABORTED, kCall, ": the ncclComm_t was aborted");
  Config config = OurConfig();
  // NCCL stores there when the split is done, so it outlives a wait that is given up.
  auto made = std::make_unique<Comm>(nullptr);
  const Status split =
      Settle(api_.comm_split(comm_, color, key, made.get(), &config), kCall, may_wait);
  if (!split.ok()) static_cast<void>(made.release());
  COLLOPS_RETURN_IF_ERROR(split);
  if (color == kNoColor) return Ok();
  std::shared_ptr<CommHandle> whole(new CommHandle(api_, *made, true));
  COLLOPS_RETURN_IF_ERROR(whole->Settle(Result::kInProgress, kCall, may_wait));
  *part = std::move(whole);
  return Ok();
}

Status CommHandle::FindResult(Result* result) {
  const std::lock_guard<std::mutex> lock(asking_);
  COLLOPS_CHECK_ARG(!aborted_, ERROR_ABORTED, "the ncclComm_t was aborted");
  return ToStatus(api_, api_.comm_get_async_error(comm_, result), "ncclCommGetAsyncError");
}

Status CommHandle::Settle(Result result, const char* name, const MayWait& may_wait) {
  while (result == Result::kInProgress) {
    COLLOPS_RETURN_IF_ERROR(FindResult(&result));
    if (result != Result::kInProgress) break;
    const Status may = may_wait(name);
    unsettled_ |= !may.ok();
    COLLOPS_RETURN_IF_ERROR(may);
    std::this_thread::sleep_for(kLook);
  }
  return ToStatus(api_, result, name);
}

std::future<void> CommHandle::BeginAbort() {
  if (!owned_ || fork_generation_ != ForkGeneration()) return {};
  {
    const std::lock_guard<std::mutex> lock(asking_);
    if (aborted_.exchange(true)) return {};
  }
  const auto done = std::make_shared<std::promise<void>>();
  std::thread([abort = api_.comm_abort, comm = comm_, done] {
    // The caller cannot act on an error of this call.
    static_cast<void>(abort(comm));
    done->set_value();
  }).detach();
  return done->get_future();
}

// A communicator whose calls may still run is aborted: ncclCommDestroy would wait for its peers. In
// a child of fork() it is the parent's.
CommHandle::~CommHandle() {
  if (!owned_ || aborted_ || fork_generation_ != ForkGeneration()) return;
  // The caller cannot act on an error of these calls.
  if (ended_) {
    static_cast<void>(api_.comm_destroy(comm_));
  } else {
    const std::future<void> done = BeginAbort();
    if (done.valid()) static_cast<void>(done.wait_for(kAborts));
  }
}

}  // namespace collops::nccl
