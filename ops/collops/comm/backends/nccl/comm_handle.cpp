#include "collops/comm/backends/nccl/comm_handle.h"

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "collops/comm/backends/nccl/library/error.h"

namespace collops::nccl {
namespace {

// How long a wait sleeps between two looks.
constexpr std::chrono::milliseconds kLook(1);
// How long ncclCommAbort is waited for.
constexpr std::chrono::seconds kAborts(2);
// How long a function that was given up has to return by itself. An abort meanwhile might free what
// it still uses; later it ends a wait for a rank that does not come.
constexpr std::chrono::seconds kReturns(10);

struct Answer {
  Status reached;
  Result result = Result::kInternalError;
};

// A function of NCCL that makes an ncclComm_t and waits for other ranks, in a thread of its own.
class Making {
 public:
  using Call = std::function<Result(Comm* made)>;

  Status Start(const char* name, const OnGpu& on_gpu, const Call& call) {
    try {
      std::thread([self = kept_, on_gpu, call] {
        Answer answer;
        answer.reached = on_gpu([&] { answer.result = call(&self->made); });
        self->promise.set_value(answer);
      }).detach();
      return Ok();
    } catch (const std::system_error& error) {
      return Error(ERROR_RT_FAIL, name, ": no thread can be started: ", error.what());
    }
  }

  Status Await(const char* name, const MayWait& may_wait, Result* result) {
    while (answer_.wait_for(kLook) != std::future_status::ready) {
      COLLOPS_RETURN_IF_ERROR(may_wait(name));
    }
    *result = answer_.get().result;
    return answer_.get().reached;
  }

  // NCCL may store it long before the function returns.
  Comm made() const { return __atomic_load_n(&kept_->made, __ATOMIC_ACQUIRE); }

  // Aborts what is made by a function that was given up, once that has returned.
  void AbortLater(const Api& api) const {
    std::thread([self = *this, abort = api.comm_abort] {
      self.answer_.wait_for(kReturns);
      // No one can act on an error of this call.
      if (self.made() != nullptr) static_cast<void>(abort(self.made()));
    }).detach();
  }

 private:
  struct Kept {
    Comm made = nullptr;
    std::promise<Answer> promise;
  };

  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  std::shared_future<Answer> answer_ = kept_->promise.get_future().share();
};

}  // namespace

Config CommHandle::OurConfig() {
  Config config = {};
  config.size = sizeof(Config);
  config.magic = kConfigMagic;
  config.version = kConfigVersion;
  config.blocking = 1;
  for (int32_t* field : {&config.cga_cluster_size, &config.min_ctas, &config.max_ctas,
                         &config.split_share, &config.traffic_class, &config.collnet_enable,
                         &config.cta_policy, &config.shrink_share, &config.nvls_ctas}) {
    *field = kConfigNotSet;
  }
  return config;
}

Status CommHandle::FromUniqueId(const Api& api, int rank, int rank_size, const UniqueId& id,
                                const OnGpu& on_gpu, const MayWait& may_wait,
                                std::shared_ptr<CommHandle>* handle) {
  constexpr const char* kCall = "ncclCommInitRankConfig";
  Making making;
  COLLOPS_RETURN_IF_ERROR(
      making.Start(kCall, on_gpu, [=, init = api.comm_init_rank_config](Comm* made) {
        Config config = OurConfig();
        return init(made, rank_size, id, rank, &config);
      }));
  Result result = Result::kSuccess;
  const Status waited = making.Await(kCall, may_wait, &result);
  if (!waited.ok()) {
    making.AbortLater(api);
    return waited;
  }
  if (making.made() == nullptr) return ToStatus(api, result, kCall);
  std::shared_ptr<CommHandle> whole(new CommHandle(api, making.made(), true));
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, result, kCall));
  *handle = std::move(whole);
  return Ok();
}

std::shared_ptr<CommHandle> CommHandle::OfCaller(const Api& api, Comm comm) {
  return std::shared_ptr<CommHandle>(new CommHandle(api, comm, false));
}

Status CommHandle::Split(int color, int key, const OnGpu& on_gpu, const MayWait& may_wait,
                         std::shared_ptr<CommHandle>* part) {
  constexpr const char* kCall = "ncclCommSplit";
  COLLOPS_CHECK_ARG(!aborted_, ERROR_ABORTED, kCall, ": the ncclComm_t was aborted");
  Making making;
  COLLOPS_RETURN_IF_ERROR(
      making.Start(kCall, on_gpu, [=, split = api_.comm_split, comm = comm_](Comm* made) {
        Config config = OurConfig();
        return split(comm, color, key, made, &config);
      }));
  Result result = Result::kSuccess;
  const Status waited = making.Await(kCall, may_wait, &result);
  if (!waited.ok()) {
    static_cast<void>(BeginAbort());
    return waited;
  }
  COLLOPS_RETURN_IF_ERROR(Settle(result, kCall, may_wait));
  if (color != kNoColor) part->reset(new CommHandle(api_, making.made(), true));
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
    COLLOPS_RETURN_IF_ERROR(may_wait(name));
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
