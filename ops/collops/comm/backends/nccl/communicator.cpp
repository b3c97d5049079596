#include "collops/comm/backends/nccl/communicator.h"

#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "collops/comm/backends/nccl/backend.h"
#include "collops/core/deadline.h"
#include "collops/core/process/interrupt.h"
#include "collops/kernels/cuda/compute.h"
#include "collops/kernels/reduce/reduce.h"

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

namespace {

// How long an ncclComm_t of ours waits for its calls before it is ended.
constexpr double kEndS = 2.0;
constexpr int64_t kStandInBytes = 256;

// What a rank tells the others: rank 0 has made the unique id.
struct Greeting {
  UniqueId id;
  cuda::Home home;
};

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                                   const cuda::DriverApi& driver, Comm caller_comm, bool compares)
    : StreamCommunicator(std::move(control), DeviceKind::kCuda, compares, &runtime_),
      api_(api),
      driver_(driver),
      runtime_(driver),
      kernels_(driver) {
  if (caller_comm != nullptr) caller_comm_ = CommHandle::OfCaller(api, caller_comm);
  SetCompute(std::make_unique<cuda::CudaCompute>(driver, device_index()));
  Begin();
}

Status NcclCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  switch (primitive) {
    case Primitive::kGather:
    case Primitive::kExchange:
    case Primitive::kMessages:
      return Ok();
    case Primitive::kReduce:
    case Primitive::kEvenReduce:
      COLLOPS_CHECK_ARG(kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED, "backend nccl has no ",
                        Name(op), " of ", Name(dtype));
      return Ok();
    case Primitive::kWindows:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend nccl has no windows: NCCL reads any memory of its GPU");
}

MayWait NcclCommunicator::UntilTimeout() const {
  const double limit_s = control().timeout_s();
  return [this, limit_s, deadline = Deadline::After(limit_s)](const char* call) -> Status {
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, call, ": rank ", rank(), " was interrupted");
    COLLOPS_RETURN_IF_ERROR(control().Peek(call));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, call, ": NCCL did not finish within ",
                      limit_s, " s: a rank has not made this call");
    return Ok();
  };
}

// The watcher's abort ends a call that waits inside NCCL, and the group's error says why.
Status NcclCommunicator::Taken(Result result, const char* call) const {
  if (result == Result::kSuccess) return Ok();
  const Status status = handle_->Settle(result, call, UntilTimeout());
  return !status.ok() && control().failed() ? control().Failure() : status;
}

// For a thread of this process that may outlast the communicator.
OnGpu NcclCommunicator::InThread() const {
  return [&driver = driver_, device = int{device_index()}](const std::function<void()>& step) {
    const cuda::RelaxedCaptures relaxed(driver);
    return cuda::OnDevice(driver, device, step);
  };
}

Status NcclCommunicator::Connect(std::shared_ptr<CommHandle> handle) {
  COLLOPS_RETURN_IF_ERROR(kernels_.Load());
  const auto before = [this] {
    return cuda::RunningCalls::Await(
        driver_, [may_wait = UntilTimeout()] { return may_wait(kFirstContact); });
  };
  COLLOPS_RETURN_IF_ERROR(
      cuda::Pool::Take(driver_, device_index(), kStandInBytes, before, &stand_in_));
  {
    const std::lock_guard<std::mutex> lock(letting_go_);
    handle_ = std::move(handle);
  }
  is_connected_ = true;
  return Ok();
}

// A caller's ncclComm_t has a GPU, whichever this thread has chosen. A thread that has chosen none
// works on device 0 in CUDA's runtime, and so in torch.
Status NcclCommunicator::FindDevice(int* device) const {
  if (caller_comm_ != nullptr) {
    return ToStatus(api_, api_.comm_cu_device(caller_comm_->comm(), device), "ncclCommCuDevice");
  }
  return cuda::CurrentDevice(driver_, device);
}

Status NcclCommunicator::AsyncError() {
  Result error = Result::kSuccess;
  COLLOPS_RETURN_IF_ERROR(handle_->FindResult(&error));
  return ToStatus(api_, error, "NCCL");
}

// A caller's ncclComm_t is the caller's to abort.
void NcclCommunicator::AbortCalls() {
  std::shared_ptr<CommHandle> handle;
  {
    const std::lock_guard<std::mutex> lock(letting_go_);
    handle = handle_;
  }
  if (handle != nullptr) static_cast<void>(handle->BeginAbort());
}

double NcclCommunicator::Patience() const {
  return handle_ != nullptr && handle_->owned() ? kEndS : 0.0;
}

// What is not destroyed is aborted with its last user, which ends the calls that still run. A rank
// that is lost destroys nothing, and ncclCommDestroy would wait for it.
void NcclCommunicator::LetGo(bool past) {
  if (past && handle_ != nullptr && control().Peek("Close").ok()) handle_->End();
  stand_in_.reset();
  is_connected_ = false;
  const std::lock_guard<std::mutex> lock(letting_go_);
  handle_.reset();
}

// Rank 0's goes over the host connection. The ranks also agree on NCCL's version.
Status NcclCommunicator::ShareUniqueId(UniqueId* id) {
  Greeting own = {};
  if (rank() == 0) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.get_unique_id(&own.id), "ncclGetUniqueId"));
  }
  COLLOPS_RETURN_IF_ERROR(cuda::FindHome(driver_, device_index(), &own.home));
  Agreement agreement(kFirstContact);
  agreement.EqualText("COLLOPS_CHECK", compares() ? "1" : "0")
      .EqualText("NCCL's version", VersionText().c_str());
  std::vector<Greeting> all(static_cast<size_t>(size()));
  COLLOPS_RETURN_IF_ERROR(control().Share(agreement, &own, sizeof(own), all.data()));
  *id = all[0].id;
  std::vector<cuda::Home> homes;
  for (const Greeting& greeting : all) homes.push_back(greeting.home);
  cuda::WarnOfSharing(driver_, device_index(), rank(), homes);
  SetShare(ShareOf(homes));
  return Ok();
}

// Connects the ranks by the part that a split made, or by a unique id.
Status NcclCommunicator::Meet() {
  if (caller_comm_ != nullptr) return Connect(caller_comm_);
  const std::shared_ptr<void>& part = spec().engine_part;
  if (part != nullptr) {
    auto& handle = *std::static_pointer_cast<PartInSpec>(part);
    COLLOPS_RETURN_IF_ERROR(Connect(std::static_pointer_cast<CommHandle>(handle)));
    handle.reset();
    return Ok();
  }
  UniqueId id = {};
  COLLOPS_RETURN_IF_ERROR(ShareUniqueId(&id));
  std::shared_ptr<CommHandle> handle;
  COLLOPS_RETURN_IF_ERROR(
      CommHandle::FromUniqueId(api_, rank(), size(), id, InThread(), UntilTimeout(), &handle));
  return Connect(std::move(handle));
}

// Split by NCCL if the ranks are connected; else the subgroup meets by a unique id of its own. A
// group without a board is always split by NCCL.
Status NcclCommunicator::DoSplit(const std::vector<int>& members, int index,
                                 const std::string& /*name*/, std::shared_ptr<void>* part) {
  return RunOnDevice("split", [&]() -> Status {
    if (!control().has_board()) COLLOPS_RETURN_IF_ERROR(MeetOnce("split"));
    if (!connected()) return Ok();
    const int color = index < 0 ? kNoColor : members[0];
    std::shared_ptr<CommHandle> made;
    COLLOPS_RETURN_IF_ERROR(InCall(
        "split", handle_->Split(color, index < 0 ? 0 : index, InThread(), UntilTimeout(), &made)));
    if (made != nullptr) *part = std::make_shared<PartInSpec>(std::move(made));
    return Ok();
  });
}

namespace {

class Libraries {
 public:
  const Api* nccl = nullptr;
  const cuda::DriverApi* driver = nullptr;

  Status Load() {
    COLLOPS_RETURN_IF_ERROR(OfBackend(cuda::LoadDriver(&driver)));
    COLLOPS_RETURN_IF_ERROR(nccl::Load(&nccl));
    return OfBackend(cuda::Kernels::Available());
  }

  // `comm`: the caller's ncclComm_t, or null.
  std::shared_ptr<Communicator> Make(std::shared_ptr<control::Control> control, Comm comm,
                                     bool compares) const {
    return std::make_shared<NcclCommunicator>(std::move(control), *nccl, *driver, comm, compares);
  }

 private:
  static Status OfBackend(const Status& status) {
    return status.ok() ? Ok() : Error(status.code(), "backend nccl: ", status.message());
  }
};

}  // namespace

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size);
}

Status Available() {
  Libraries libraries;
  return libraries.Load();
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  Libraries libraries;
  COLLOPS_RETURN_IF_ERROR(libraries.Load());
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControl(spec, false, &control, &compares));
  *communicator = libraries.Make(std::move(control), nullptr, compares);
  return Ok();
}

Status Describe(void* comm, CommunicatorSpec* spec) {
  Libraries libraries;
  COLLOPS_RETURN_IF_ERROR(libraries.Load());
  const Api& api = *libraries.nccl;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.comm_user_rank(comm, &spec->rank), "the ncclComm_t: ncclCommUserRank"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.comm_count(comm, &spec->rank_size), "the ncclComm_t: ncclCommCount"));
  spec->comm_domain = Concat("ncclComm/", comm);
  return Ok();
}

Status Adopt(const CommunicatorSpec& spec, void* comm,
             std::shared_ptr<Communicator>* communicator) {
  Libraries libraries;
  COLLOPS_RETURN_IF_ERROR(libraries.Load());
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControl(spec, true, &control, &compares));
  *communicator = libraries.Make(std::move(control), comm, compares);
  return Ok();
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  const Api* api = nullptr;
  const Status loaded = Load(&api);
  if (!loaded.ok()) return {{"no", loaded.message()}};
  return {{"version", VersionText()}};
}

}  // namespace collops::nccl
