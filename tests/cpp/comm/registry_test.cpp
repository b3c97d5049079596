// The registry with backends of this test, one of which takes an engine's handles: this program
// defines FindBackend, so the linker leaves out the library's table.
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
  EXPECT_EQ(status.message(), "");
  return communicator;
}

void ExpectRefused(const CommunicatorSpec& spec, ErrorCode code, const std::string& message) {
  std::shared_ptr<Communicator> communicator;
  const Status status = Registry::Instance().Get(spec, &communicator);
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), message);
  EXPECT_TRUE(communicator == nullptr);
}

// What an engine's handle points to.
struct Handle {
  int rank = 0;
  int rank_size = 2;
  std::string name = "adopted";
};

int adoptions = 0;

Status Describe(void* handle, CommunicatorSpec* spec) {
  if (handle == nullptr) return Error(ERROR_HCCL_FAIL, "no handle");
  const auto* engines = static_cast<const Handle*>(handle);
  spec->rank = engines->rank;
  spec->rank_size = engines->rank_size;
  spec->comm_domain = engines->name;
  return Ok();
}

Status Take(const CommunicatorSpec& spec, void*, std::shared_ptr<Communicator>* communicator) {
  ++adoptions;
  *communicator = std::make_shared<FakeCommunicator>(spec);
  return Ok();
}

Handle engines_own;

std::shared_ptr<Communicator> Adopted(void* handle, CommMode mode = COMM_MULTI_PROCESS) {
  std::shared_ptr<Communicator> found;
  EXPECT_EQ(Registry::Instance().Adopt(handle, "engine", mode, &found).message(), "");
  return found;
}

void ExpectNotAdopted(void* handle, const char* backend = "engine",
                      const char* why = "is not an open communicator of this process") {
  const int before = adoptions;
  std::shared_ptr<Communicator> found;
  const Status status = Registry::Instance().Adopt(handle, backend, COMM_MULTI_PROCESS, &found);
  EXPECT_EQ(status.code(), ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), why);
  EXPECT_TRUE(found == nullptr);
  EXPECT_EQ(adoptions, before);
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
  static constexpr Backend kEngine{"engine", Available, Create, nullptr, Describe, Take};
  for (const Backend* backend : {&kFake, &kOther, &kEngine}) {
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

TEST(AFailedCreationLeavesNothingBehind) {
  ExpectRefused(Spec("refused"), ERROR_INTERNAL_ERROR, "refused");
  ExpectRefused(Spec("refused", 1, 7), ERROR_INTERNAL_ERROR, "refused");
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
    // It is not taken for one of an engine's either.
    const bool unknown =
        !Registry::Instance().FromHandle(parents.get(), &found).ok() &&
        !Registry::Instance().Adopt(parents.get(), "engine", COMM_MULTI_PROCESS, &found).ok();
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

TEST(AnEnginesHandleHasOneCommunicatorWhileItIsUsed) {
  const int before = adoptions;
  auto first = Adopted(&engines_own);
  EXPECT_TRUE(Adopted(&engines_own) == first);
  EXPECT_EQ(adoptions - before, 1);
  first.reset();
  first = Adopted(&engines_own, COMM_MULTI_THREAD);
  EXPECT_EQ(adoptions - before, 2);
  EXPECT_EQ(first->spec().comm_mode, COMM_MULTI_THREAD);
  first->Close("it is over");
  EXPECT_FALSE(Adopted(&engines_own) == first);
  EXPECT_EQ(adoptions - before, 3);
}

TEST(CommunicatorsOfThisLibraryAreFoundAndNotAdopted) {
  auto ours = Get(Spec("ours"));
  void* const address = ours.get();
  EXPECT_TRUE(Adopted(address) == ours);
  ours->Close("it is over");
  ExpectNotAdopted(address, "engine", "commDomain \"ours\" has failed or was closed");
  ours.reset();
  Get(Spec("next"));  // destroys those that have ended
  ExpectNotAdopted(address);
  ExpectNotAdopted(address);
  for (const char* name : {"fake", "nonsense"}) ExpectNotAdopted(&engines_own, name);
  Registry::Instance().CloseAll("end of test");
}

TEST(AHandleOfAnotherGroupGetsAnotherCommunicator) {
  auto live = Adopted(&engines_own);
  const Handle others[] = {{1, 2, "adopted"}, {1, 3, "adopted"}, {1, 3, "another"}};
  for (const Handle& other : others) {
    engines_own = other;  // the engine destroyed it and made another at the same address
    const auto next = Adopted(&engines_own);
    EXPECT_FALSE(next == live);
    EXPECT_TRUE(live->failed());
    EXPECT_FALSE(next->failed());
    EXPECT_EQ(next->rank(), other.rank);
    EXPECT_EQ(next->size(), other.rank_size);
    EXPECT_EQ(next->spec().comm_domain, other.name);
    EXPECT_TRUE(Adopted(&engines_own) == next);
    live = next;
  }
  engines_own = Handle();
}

TEST(AnEnginesRefusalIsPassedOn) {
  std::shared_ptr<Communicator> found;
  const Status status = Registry::Instance().Adopt(nullptr, "engine", COMM_MULTI_PROCESS, &found);
  EXPECT_EQ(status.code(), ERROR_HCCL_FAIL);
  EXPECT_EQ(status.message(), "no handle");
}

TEST(TheEndOfTheProcessClosesAdoptedOnesToo) {
  // Ranks that are threads, although their structs do not say so.
  Handle others{1, 2, "adopted"};
  const auto first = Adopted(&engines_own);
  const auto second = Adopted(&others);
  Registry::Instance().CloseAll("the end");
  EXPECT_TRUE(first->failed());
  EXPECT_TRUE(second->failed());
}
