// The registry with a backend of this test: this program defines FindBackend, so the linker leaves
// out the library's table.
#include "collops/comm/registry.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/comm/backends/backend_table.h"
#include "collops/comm/control/control.h"

namespace {

using namespace collops;

// What happened to the communicators, in memory that forked children share.
struct Record {
  std::atomic<int> created;
  std::atomic<int> closed;
  std::atomic<int> destroyed;
  std::atomic<int> closed_as_process_ended;
};

Record& Shared() {
  static Record* const record =
      new (mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          Record{};
  return *record;
}

std::vector<std::string>& CloseLog() {
  static std::vector<std::string>* const log = new std::vector<std::string>;
  return *log;
}

class FakeCommunicator : public collops::BackendCommunicator {
 public:
  explicit FakeCommunicator(const CommunicatorSpec& spec)
      : BackendCommunicator(std::make_shared<collops::control::Control>(spec)) {
    ++Shared().created;
  }
  ~FakeCommunicator() override {
    AskTheRegistry();
    ++Shared().destroyed;
  }

  Status Supports(Primitive, DType, ReduceOp) const override { return Ok(); }
  Status DoAllGatherV(const AllGatherVCall&) override { return Ok(); }
  Status DoReduceScatterV(const ReduceScatterVCall&) override { return Ok(); }
  Status AllocateWindow(int64_t, std::shared_ptr<Window>*) override { return Ok(); }
  bool HasWindows() const override { return has_windows; }
  bool has_windows = false;
  void OnClose() override {
    AskTheRegistry();
    const std::string reason = control().CheckUsable("a call").message();
    ++Shared().closed;
    if (reason.find("the process ended") != std::string::npos) ++Shared().closed_as_process_ended;
    const std::string closed = "closed it: ";
    CloseLog().push_back(spec().comm_domain + ": " +
                         reason.substr(reason.find(closed) + closed.size()));
  }

 private:
  // Would never return if the registry's lock were held here.
  void AskTheRegistry() const {
    std::shared_ptr<Communicator> none;
    static_cast<void>(Registry::Instance().FromHandle(nullptr, &none).ok());
  }
};

Status Available() {
  return Ok();
}
Status Unavailable() {
  return Error(ERROR_UNSUPPORTED, "backend absent: not here");
}

Status Create(const collops::control::GroupSpec& spec,
              std::shared_ptr<Communicator>* communicator) {
  COLLOPS_CHECK_ARG(spec.comm_domain != "refused", ERROR_INTERNAL_ERROR, "refused");
  *communicator = std::make_shared<FakeCommunicator>(spec);
  return Ok();
}

CommunicatorSpec Spec(const std::string& comm_domain, int rank = 0, int rank_size = 2) {
  CommunicatorSpec spec;
  spec.backend = "fake";
  spec.comm_domain = comm_domain;
  spec.rank = rank;
  spec.rank_size = rank_size;
  return spec;
}

CommunicatorSpec ThreadSpec(const std::string& comm_domain, int rank, int rank_size = 2) {
  CommunicatorSpec spec = Spec(comm_domain, rank, rank_size);
  spec.comm_mode = COMM_MULTI_THREAD;
  return spec;
}

std::shared_ptr<Communicator> Get(const CommunicatorSpec& spec) {
  std::shared_ptr<Communicator> communicator;
  const Status status = Registry::Instance().Get(spec, &communicator);
  EXPECT_EQ(status.message(), std::string());
  return communicator;
}

void ExpectRefused(const CommunicatorSpec& spec, ErrorCode code, const std::string& message) {
  std::shared_ptr<Communicator> communicator;
  const Status status = Registry::Instance().Get(spec, &communicator);
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), message);
  EXPECT_TRUE(communicator == nullptr);
}

// Runs `body` in a forked child; true when the child left with status 0.
template <typename Body>
bool InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) body();
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

namespace collops {

const Backend* FindBackend(const std::string& name) {
  static constexpr Backend kFake{"fake", Available, Create, nullptr};
  static constexpr Backend kOther{"other", Available, Create, nullptr};
  static constexpr Backend kAbsent{"absent", Unavailable, Create, nullptr};
  for (const Backend* backend : {&kFake, &kOther, &kAbsent}) {
    if (name == backend->name) return backend;
  }
  return nullptr;
}

}  // namespace collops

TEST(OneDomainIsOneCommunicator) {
  const auto first = Get(Spec("a"));
  EXPECT_TRUE(Get(Spec("a")) == first);
  EXPECT_TRUE(Get(Spec("b")) != first);
  CommunicatorSpec other = Spec("a", 1, 5);  // the same domain on another backend is another group
  other.backend = "other";
  EXPECT_TRUE(Get(other) != first);
  Registry::Instance().CloseAll("end of test");
}

TEST(RanksThatAreThreadsHaveACommunicatorEach) {
  const auto first = Get(ThreadSpec("t", 0));
  const auto second = Get(ThreadSpec("t", 1));
  EXPECT_TRUE(first != second);
  EXPECT_TRUE(Get(ThreadSpec("t", 0)) == first);
  EXPECT_TRUE(Get(ThreadSpec("t", 1)) == second);
  ExpectRefused(
      ThreadSpec("t", 2, 3), ERROR_INVALID_PARAM,
      "this process already has a communicator of 2 ranks (comm_domain \"t\", backend fake), "
      "got 3: close() it, or pass another comm_domain");
  Registry::Instance().CloseAll("end of test");
}

TEST(ALiveDomainRefusesAnotherGroup) {
  const auto live = Get(Spec("dp", 1, 4));
  const std::string begin = "this process already has a communicator ";
  const auto end = [](int got) {
    return Concat(" (comm_domain \"dp\", backend fake), got ", got,
                  ": close() it, or pass another comm_domain");
  };
  ExpectRefused(Spec("dp", 2, 4), ERROR_INVALID_PARAM, begin + "as rank 1" + end(2));
  ExpectRefused(Spec("dp", 1, 3), ERROR_INVALID_PARAM, begin + "of 4 ranks" + end(3));
  ExpectRefused(ThreadSpec("dp", 1, 4), ERROR_INVALID_PARAM, begin + "of comm_mode 0" + end(1));
  EXPECT_TRUE(Get(Spec("dp", 1, 4)) == live);
  live->Close("left");
  EXPECT_TRUE(Get(Spec("dp", 2, 3)) != live);
  Registry::Instance().CloseAll("end of test");
}

TEST(AnUnusedCommunicatorIsClosedForAnotherGroup) {
  Get(Spec("free", 1, 4));
  Get(Spec("other", 1, 4));
  CloseLog().clear();
  const int destroyed = Shared().destroyed;
  const auto second = Get(Spec("free", 1, 3));
  EXPECT_EQ(second->size(), 3);
  EXPECT_EQ(Shared().destroyed - destroyed, 1);
  ASSERT_EQ(CloseLog().size(), size_t{1});
  EXPECT_CONTAINS(CloseLog()[0], "free: nothing in its process uses it any more");
  // An operation uses the communicator now.
  ExpectRefused(
      Spec("free", 1, 5), ERROR_INVALID_PARAM,
      "this process already has a communicator of 3 ranks (comm_domain \"free\", backend fake), "
      "got 5: close() it, or pass another comm_domain");
  Registry::Instance().CloseAll("end of test");
}

TEST(ACommunicatorWithAWindowInUseStays) {
  static_cast<FakeCommunicator*>(Get(Spec("window", 0, 2)).get())->has_windows = true;
  ExpectRefused(
      Spec("window", 0, 3), ERROR_INVALID_PARAM,
      "this process already has a communicator of 2 ranks (comm_domain \"window\", backend fake), "
      "got 3: close() it, or pass another comm_domain");
  static_cast<FakeCommunicator*>(Get(Spec("window", 0, 2)).get())->has_windows = false;
  EXPECT_EQ(Get(Spec("window", 0, 3))->size(), 3);
  Registry::Instance().CloseAll("end of test");
}

// The group is in use by one thread, so the communicator of the other rank stays, too.
TEST(AGroupOfThreadsIsReplacedAsAWhole) {
  auto first = Get(ThreadSpec("pair", 0));
  Get(ThreadSpec("pair", 1));
  CloseLog().clear();
  ExpectRefused(
      ThreadSpec("pair", 1, 3), ERROR_INVALID_PARAM,
      "this process already has a communicator of 2 ranks (comm_domain \"pair\", backend fake), "
      "got 3: close() it, or pass another comm_domain");
  EXPECT_TRUE(CloseLog().empty());
  first.reset();
  EXPECT_EQ(Get(ThreadSpec("pair", 1, 3))->size(), 3);
  EXPECT_EQ(CloseLog().size(), size_t{2});
  Registry::Instance().CloseAll("end of test");
}

TEST(AFailedCommunicatorIsReplacedAndDestroyed) {
  Communicator* const first = Get(Spec("f")).get();
  first->Abort("broken");
  const int destroyed = Shared().destroyed;
  const auto second = Get(Spec("f"));
  EXPECT_FALSE(second->failed());
  EXPECT_EQ(Shared().destroyed - destroyed, 1);
  // An operation may still use the failed communicator; Get() does not return it either.
  second->Abort("broken");
  EXPECT_TRUE(Get(Spec("f")) != second);
  Registry::Instance().CloseAll("end of test");
}

TEST(BackendsThatCannotRunAreRefused) {
  CommunicatorSpec spec = Spec("a");
  spec.backend = "absent";
  ExpectRefused(spec, ERROR_UNSUPPORTED, "backend absent: not here");
  spec.backend = "nonsense";
  ExpectRefused(spec, ERROR_INVALID_PARAM, "backend \"nonsense\" is not known");
}

TEST(AFailedCreationLeavesNothingBehind) {
  ExpectRefused(Spec("refused"), ERROR_INTERNAL_ERROR, "refused");
  ExpectRefused(Spec("refused", 1, 7), ERROR_INTERNAL_ERROR, "refused");
}

TEST(HandlesAreComparedWithTheLiveOnes) {
  const auto live = Get(Spec("h"));
  std::shared_ptr<Communicator> found;
  EXPECT_TRUE(Registry::Instance().FromHandle(live.get(), &found).ok());
  EXPECT_TRUE(found == live);
  found.reset();
  for (const uintptr_t number : {uintptr_t{0}, uintptr_t{1}, uintptr_t{0xdeadbeef}}) {
    const Status status =
        Registry::Instance().FromHandle(reinterpret_cast<const void*>(number), &found);
    EXPECT_EQ(status.code(), ERROR_INVALID_PARAM);
    EXPECT_CONTAINS(status.message(), "is not an open communicator of this process");
  }
  live->Close("left");
  const Status status = Registry::Instance().FromHandle(live.get(), &found);
  EXPECT_EQ(status.code(), ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), "\"h\" has failed or was closed");
  EXPECT_TRUE(found == nullptr);
}

TEST(AClosedCommunicatorGoesWithItsLastUser) {
  auto live = Get(Spec("closed"));
  const int destroyed = Shared().destroyed;
  live->Close("left");
  EXPECT_EQ(Shared().destroyed.load(), destroyed);
  live.reset();
  EXPECT_EQ(Shared().destroyed.load(), destroyed + 1);
  Get(Spec("owned"))->Close("by the registry's last user");
  EXPECT_EQ(Shared().destroyed.load(), destroyed + 2);
}

TEST(CloseAllClosesEachOnceInOrder) {
  Registry::Instance().CloseAll("before");
  Get(Spec("b"));
  Get(Spec("a"));
  const auto failed = Get(Spec("c"));
  Get(ThreadSpec("a2", 1));
  failed->Abort("broken");
  CloseLog().clear();
  Registry::Instance().CloseAll("done");
  Registry::Instance().CloseAll("again");
  EXPECT_EQ(CloseLog(), (std::vector<std::string>{"a2: done", "a: done", "b: done"}));
}

TEST(ConcurrentGetsReturnOneCommunicator) {
  const int created = Shared().created;
  std::vector<Communicator*> seen(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&seen, i] {
      std::shared_ptr<Communicator> communicator;
      if (Registry::Instance().Get(Spec("same"), &communicator).ok()) seen[i] = communicator.get();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Shared().created - created, 1);
  EXPECT_EQ(seen, std::vector<Communicator*>(8, Get(Spec("same")).get()));
  Registry::Instance().CloseAll("end of test");
}

TEST(AForkedChildStartsAnew) {
  const auto parents = Get(Spec("fork", 0, 2));
  const int closed = Shared().closed;
  const int destroyed = Shared().destroyed;
  EXPECT_TRUE(InChild([&] {
    std::shared_ptr<Communicator> found;
    const bool unknown = !Registry::Instance().FromHandle(parents.get(), &found).ok();
    // Another rank of the same domain, as in a forked worker process.
    const Status status = Registry::Instance().Get(Spec("fork", 1, 2), &found);
    const bool own = status.ok() && found != parents && found->rank() == 1;
    found.reset();
    Registry::Instance().CloseAll("child is done");
    std::exit(unknown && own ? 0 : 1);
  }));
  EXPECT_EQ(Shared().closed - closed, 1);
  EXPECT_EQ(Shared().destroyed - destroyed, 1);
  EXPECT_FALSE(parents->failed());
  EXPECT_TRUE(Get(Spec("fork", 0, 2)) == parents);
  Registry::Instance().CloseAll("end of test");
}

TEST(AForkDuringAnotherThreadsCallIsNoDeadlock) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    std::shared_ptr<Communicator> none;
    while (!stop) static_cast<void>(Registry::Instance().FromHandle(&stop, &none).ok());
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(InChild([] {
      std::shared_ptr<Communicator> communicator;
      _exit(Registry::Instance().Get(Spec("busy"), &communicator).ok() ? 0 : 1);
    }));
  }
  stop = true;
  busy.join();
}

TEST(TheEndOfAProcessClosesItsCommunicators) {
  const auto parents = Get(Spec("parent"));
  const int ended = Shared().closed_as_process_ended;
  const int closed = Shared().closed;
  EXPECT_TRUE(InChild([] {
    Get(Spec("child"));
    std::exit(0);
  }));
  EXPECT_EQ(Shared().closed_as_process_ended - ended, 1);
  // The child has no communicators; its end must not close the parent's.
  EXPECT_TRUE(InChild([] { std::exit(0); }));
  EXPECT_EQ(Shared().closed - closed, 1);
  EXPECT_FALSE(parents->failed());
  Registry::Instance().CloseAll("end of test");
}
