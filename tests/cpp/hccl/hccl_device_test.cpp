// On which NPU the hccl backend acts, and how it finds out that its calls have ended, recorded by
// fake functions of CANN.
#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/comm/backends/hccl/backend.h"
#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/control/control.h"
#include "ranks.h"

namespace {

using collops::AllGatherVCall;
using collops::Communicator;
using collops::CommunicatorSpec;
using collops::DType;
using collops::Status;
using namespace collops::hccl;  // the declarations of CANN

constexpr AclError kNoContext = 107002;

struct FakeStream {
  bool is_done = true;
};

struct FakeEvent {
  FakeStream* stream = nullptr;
};

thread_local int32_t current = -1;

// One call of CANN, and the thread's NPU in it.
struct Seen {
  std::string function;
  int32_t device;
};

std::mutex mutex;
std::vector<Seen> seen;
std::list<FakeEvent> events;
AclError record_answer = 0;
AclError query_answer = 0;
int communicator_of_hccl = 0;

template <typename Answer>
Answer Note(const char* function, Answer without_device) {
  const std::lock_guard<std::mutex> lock(mutex);
  seen.push_back({function, current});
  return current < 0 ? without_device : Answer{};
}

int Count(const std::string& function) {
  return static_cast<int>(std::count_if(seen.begin(), seen.end(),
                                        [&](const Seen& s) { return s.function == function; }));
}

bool AllOn(int32_t device) {
  return std::all_of(seen.begin(), seen.end(), [&](const Seen& s) { return s.device == device; });
}

void FakeRuntime(Api* api) {
  api->get_device = [](int32_t* device) {
    *device = current;
    return current < 0 ? kNoContext : AclError{0};
  };
  api->set_device = [](int32_t device) {
    current = device;
    return AclError{0};
  };
  api->get_recent_error = []() -> const char* { return nullptr; };
  api->get_soc_name = []() -> const char* { return "Ascend910B1"; };
  api->malloc = [](void** address, size_t, AllocationPolicy) {
    static char memory = 0;
    *address = &memory;
    return AclError{0};
  };
  api->free = [](void*) { return AclError{0}; };
  api->create_event = [](Event* event) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      *event = &events.emplace_back();
    }
    return Note("create", kNoContext);
  };
  api->destroy_event = [](Event) { return Note("destroy event", kNoContext); };
  api->record_event = [](Event event, Stream stream) {
    static_cast<FakeEvent*>(event)->stream = static_cast<FakeStream*>(stream);
    return record_answer != 0 ? record_answer : Note("record", kNoContext);
  };
  api->query_event_status = [](Event event, EventStatus* status) {
    const bool is_done = static_cast<FakeEvent*>(event)->stream->is_done;
    *status = is_done ? EventStatus::kComplete : EventStatus::kNotReady;
    return query_answer != 0 ? query_answer : Note("query", kNoContext);
  };
}

void FakeHccl(Api* api) {
  api->get_root_info = [](RootInfo*) { return Note("root info", Result::kInternal); };
  api->comm_init_root_info = [](uint32_t, const RootInfo*, uint32_t, Comm* comm) {
    *comm = &communicator_of_hccl;
    return Note("init", Result::kInternal);
  };
  api->comm_destroy = [](Comm) { return Note("destroy", Result::kInternal); };
  api->get_comm_async_error = [](Comm, Result* error) {
    *error = Result::kSuccess;
    return Result::kSuccess;
  };
  api->all_gather = [](void*, void*, uint64_t, DataType, Comm, Stream) {
    return Note("gather", Result::kInternal);
  };
}

const Api& FakeApi() {
  static const Api* const api = [] {
    auto* fake = new Api{};
    FakeRuntime(fake);
    FakeHccl(fake);
    return fake;
  }();
  return *api;
}

void Forget() {
  seen.clear();
  events.clear();
  record_answer = query_answer = 0;
}

std::shared_ptr<Communicator> Make(const collops::JobIdentity& job, int rank, int rank_size) {
  CommunicatorSpec spec;
  spec.backend = "hccl";
  spec.rank = rank;
  spec.rank_size = rank_size;
  spec.comm_mode = collops::COMM_MULTI_THREAD;
  spec.timeout_s = check::Patience(20);
  auto control = std::make_shared<collops::control::Control>(spec, job, 0);
  return collops::hccl::Make(std::move(control), FakeApi(), nullptr, false);
}

FakeStream stream;

// Gathers one element from each rank.
Status Gather(Communicator* communicator) {
  const std::vector<int64_t> counts(static_cast<size_t>(communicator->size()), 1);
  std::vector<int64_t> displs(counts.size());
  for (size_t r = 0; r < displs.size(); ++r) displs[r] = static_cast<int64_t>(r);
  static const collops::Agreement agreement("AllGatherV");
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = call.output = &stream;
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  call.stream = &stream;
  return communicator->AllGatherV(call);
}

// A connected communicator of one rank on NPU 0.
std::shared_ptr<Communicator> Connected() {
  Forget();
  current = 0;
  const auto communicator = Make(ranks::FreshJob(), 0, 1);
  EXPECT_EQ(communicator->Connect().message(), std::string());
  return communicator;
}

Status Keep(Communicator* communicator, FakeStream* on, collops::KeepAlive kept = nullptr) {
  return communicator->KeepOnStream("AllGatherV", on, std::move(kept));
}

}  // namespace

TEST(CallsRunOnTheCommunicatorsNpu) {
  Forget();
  current = 1;
  const auto communicator = Make(ranks::FreshJob(), 0, 1);
  current = 3;
  EXPECT_EQ(Gather(communicator.get()).message(), std::string());
  EXPECT_EQ(current, 3);
  communicator->Close("done");
  EXPECT_EQ(current, 3);
  for (const char* call : {"root info", "init", "gather", "create", "record", "destroy"}) {
    EXPECT_EQ(Count(call), 1);
  }
  EXPECT_TRUE(AllOn(1));
}

TEST(AThreadWithoutAnNpuGetsTheCommunicators) {
  Forget();
  current = 1;
  const auto communicator = Make(ranks::FreshJob(), 0, 1);
  std::thread([&] {
    EXPECT_EQ(Gather(communicator.get()).message(), std::string());
    EXPECT_EQ(current, 1);
  }).join();
  std::thread([&] { communicator->Close("done"); }).join();
  EXPECT_EQ(Count("gather"), 1);
  EXPECT_EQ(Count("destroy"), 1);
  EXPECT_TRUE(AllOn(1));
}

TEST(ARankWithoutAnNpuSaysSoInFirstContact) {
  Forget();
  const collops::JobIdentity job = ranks::FreshJob();
  std::shared_ptr<Communicator> peer;  // alive until both are done
  std::thread other([&] {
    peer = Make(job, 1, 2);
    const Status status = Gather(peer.get());
    EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
    EXPECT_CONTAINS(status.message(), "AllGatherV: no NPU is chosen in this thread");
    current = 1;
    EXPECT_EQ(Gather(peer.get()).message(), std::string());
  });
  current = 0;
  const auto communicator = Make(job, 0, 2);
  const Status status = Gather(communicator.get());
  EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(status.message(), "rank 1");
  EXPECT_CONTAINS(status.message(), "no NPU is chosen in this thread");
  EXPECT_EQ(Gather(communicator.get()).message(), std::string());
  other.join();
}

TEST(ARefusalBeforeFirstContactIsReported) {
  Forget();
  const collops::JobIdentity job = ranks::FreshJob();
  std::shared_ptr<Communicator> peer;  // alive until both are done
  std::thread other([&] {
    current = 1;
    peer = Make(job, 1, 2);
    const Status reason = collops::Error(collops::ERROR_INVALID_TENSOR_ADDR, "counts on an NPU");
    EXPECT_TRUE(peer->Refuse("AllGatherV", reason).ok());
    EXPECT_EQ(Gather(peer.get()).message(), std::string());
  });
  current = 0;
  const auto communicator = Make(job, 0, 2);
  const Status status = Gather(communicator.get());
  EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(status.message(), "counts on an NPU");
  EXPECT_EQ(Gather(communicator.get()).message(), std::string());
  other.join();
}

// The other ranks may have put their calls on streams: the group ends, and they hear why.
TEST(ARefusalAfterFirstContactEndsTheGroup) {
  Forget();
  const collops::JobIdentity job = ranks::FreshJob();
  std::shared_ptr<Communicator> peer;
  std::thread other([&] {
    current = 1;
    peer = Make(job, 1, 2);
    EXPECT_EQ(Gather(peer.get()).message(), std::string());
  });
  current = 0;
  const auto communicator = Make(job, 0, 2);
  EXPECT_EQ(Gather(communicator.get()).message(), std::string());
  other.join();
  // What HCCL cannot do no rank does: that ends nothing.
  const Status unable = collops::Error(collops::ERROR_UNSUPPORTED, "no such sum");
  EXPECT_TRUE(peer->Refuse("AllGatherV", unable).ok());
  EXPECT_EQ(Gather(communicator.get()).message(), std::string());
  const Status reason = collops::Error(collops::ERROR_INVALID_TENSOR_ADDR, "counts on an NPU");
  EXPECT_TRUE(peer->Refuse("AllGatherV", reason).ok());
  const Status status = Gather(communicator.get());
  EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(status.message(), "AllGatherV: rank 1 refused its part: counts on an NPU");
}

TEST(EveryStreamIsWaitedFor) {
  FakeStream first;
  FakeStream second;
  for (const bool is_done : {false, true}) {
    const auto communicator = Connected();
    first.is_done = is_done;
    EXPECT_TRUE(Keep(communicator.get(), &first).ok());
    EXPECT_TRUE(Keep(communicator.get(), &second).ok());
    if (!is_done) communicator->Abort("it takes too long");  // else Close() waits for the time-out
    communicator->Close("done");
    EXPECT_EQ(Count("destroy"), is_done ? 1 : 0);
    EXPECT_EQ(Count("destroy event"), Count("create") - (is_done ? 0 : 1));
  }
}

TEST(WorkOfUnknownStateHasNotEnded) {
  const auto communicator = Connected();
  EXPECT_TRUE(Keep(communicator.get(), &stream).ok());
  query_answer = 507000;
  communicator->Close("done");
  EXPECT_EQ(Count("destroy"), 0);
}

TEST(ACallWhoseEventWasNotRecordedHasNotEnded) {
  const auto communicator = Connected();
  record_answer = 507000;
  EXPECT_EQ(Keep(communicator.get(), &stream).code(), collops::ERROR_RT_FAIL);
  record_answer = 0;
  EXPECT_TRUE(Keep(communicator.get(), &stream).ok());
  communicator->Close("done");
  EXPECT_EQ(Count("destroy"), 0);
}

TEST(EventsOfStreamsThatAreDoneAreUsedAgain) {
  const auto communicator = Connected();
  std::vector<FakeStream> streams(50);
  FakeStream slow;
  slow.is_done = false;
  EXPECT_TRUE(Keep(communicator.get(), &slow).ok());
  for (FakeStream& each : streams) EXPECT_TRUE(Keep(communicator.get(), &each).ok());
  EXPECT_EQ(events.size(), size_t{2});
  EXPECT_TRUE(events.front().stream == &slow);
  EXPECT_TRUE(events.back().stream == &streams.back());
  slow.is_done = true;
  communicator->Close("done");
  EXPECT_EQ(Count("destroy event"), 2);
}

// The owner of the HcclComm waits for its calls before destroying it.
TEST(TheCallersCommunicatorIsNotWaitedFor) {
  Forget();
  current = 0;
  FakeStream slow;
  slow.is_done = false;
  const auto kept = std::make_shared<int>(1);
  {
    CommunicatorSpec spec;
    spec.backend = "hccl";
    spec.rank_size = 2;
    const auto communicator = collops::hccl::Make(std::make_shared<collops::control::Control>(spec),
                                                  FakeApi(), &communicator_of_hccl, false);
    EXPECT_EQ(communicator->Connect().message(), std::string());
    EXPECT_TRUE(Keep(communicator.get(), &slow, kept).ok());
    communicator->Close("done");
    EXPECT_EQ(Count("query"), 1);
  }
  EXPECT_EQ(kept.use_count(), 2);
  EXPECT_EQ(Count("destroy") + Count("destroy event"), 0);
}
