// Handles of an engine: the registry with a backend that takes them. This program defines
// FindBackend, so the linker leaves out the library's table.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "check.h"
#include "collops/comm/backends/backend_table.h"
#include "collops/comm/control/control.h"
#include "collops/comm/registry.h"

namespace {

using collops::Backend;
using collops::COMM_MULTI_PROCESS;
using collops::COMM_MULTI_THREAD;
using collops::CommMode;
using collops::Communicator;
using collops::CommunicatorSpec;
using collops::Registry;
using collops::Status;

class FakeCommunicator : public collops::BackendCommunicator {
 public:
  explicit FakeCommunicator(const CommunicatorSpec& spec)
      : BackendCommunicator(std::make_shared<collops::control::Control>(spec)) {}
  Status Supports(collops::Primitive, collops::DType, collops::ReduceOp) const override {
    return {};
  }
  Status AllocateWindow(int64_t, std::shared_ptr<collops::Window>*) override { return {}; }

 protected:
  Status DoAllGatherV(const collops::AllGatherVCall&) override { return {}; }
  Status DoReduceScatterV(const collops::ReduceScatterVCall&) override { return {}; }
};

Status Available() {
  return {};
}

Status Create(const collops::control::GroupSpec& spec,
              std::shared_ptr<Communicator>* communicator) {
  *communicator = std::make_shared<FakeCommunicator>(spec);
  return {};
}

// What an engine's handle points to.
struct Handle {
  int rank = 0;
  int rank_size = 2;
  std::string name = "adopted";
};

int adoptions = 0;

Status Describe(void* handle, CommunicatorSpec* spec) {
  if (handle == nullptr) return collops::Error(collops::ERROR_HCCL_FAIL, "no handle");
  const auto* engines = static_cast<const Handle*>(handle);
  spec->rank = engines->rank;
  spec->rank_size = engines->rank_size;
  spec->comm_domain = engines->name;
  return {};
}

Status Adopt(const CommunicatorSpec& spec, void*, std::shared_ptr<Communicator>* communicator) {
  ++adoptions;
  return Create(spec, communicator);
}

Handle engines_own;

std::shared_ptr<Communicator> Adopted(void* handle, CommMode mode = COMM_MULTI_PROCESS) {
  std::shared_ptr<Communicator> found;
  EXPECT_EQ(Registry::Instance().Adopt(handle, "engine", mode, &found).message(), std::string());
  return found;
}

void ExpectRefused(void* handle, const char* backend = "engine",
                   const char* why = "is not an open communicator of this process") {
  const int before = adoptions;
  std::shared_ptr<Communicator> found;
  const Status status = Registry::Instance().Adopt(handle, backend, COMM_MULTI_PROCESS, &found);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), why);
  EXPECT_TRUE(found == nullptr);
  EXPECT_EQ(adoptions, before);
}

// The registry's communicator of a domain; getting one destroys the failed ones.
std::shared_ptr<Communicator> Own(const char* comm_domain) {
  CommunicatorSpec spec;
  spec.backend = "engine";
  spec.comm_domain = comm_domain;
  spec.rank_size = 2;
  std::shared_ptr<Communicator> ours;
  EXPECT_TRUE(Registry::Instance().Get(spec, &ours).ok());
  return ours;
}

}  // namespace

namespace collops {

const Backend* FindBackend(const std::string& name) {
  static constexpr Backend kEngine{"engine", Available, Create, nullptr, Describe, Adopt};
  static constexpr Backend kPlain{"plain", Available, Create, nullptr};
  if (name == "engine") return &kEngine;
  return name == "plain" ? &kPlain : nullptr;
}

}  // namespace collops

TEST(AnEnginesHandleHasOneCommunicatorWhileItIsUsed) {
  const int before = adoptions;
  auto first = Adopted(&engines_own);
  EXPECT_TRUE(Adopted(&engines_own) == first);
  EXPECT_EQ(adoptions - before, 1);
  first.reset();
  first = Adopted(&engines_own);
  EXPECT_EQ(adoptions - before, 2);
  first->Close("it is over");
  EXPECT_FALSE(Adopted(&engines_own) == first);
  EXPECT_EQ(adoptions - before, 3);
}

TEST(CommunicatorsOfThisLibraryAreFoundAndNotAdopted) {
  const auto ours = Own("ours");
  EXPECT_TRUE(Adopted(ours.get()) == ours);
  ours->Close("it is over");
  Own("next");
  ExpectRefused(ours.get(), "engine", "commDomain \"ours\" has failed or was closed");
}

TEST(ADestroyedCommunicatorOfThisLibraryIsNotAdopted) {
  auto ours = Own("gone");
  void* const address = ours.get();
  ours->Close("it is over");
  ours.reset();
  Own("next");
  ExpectRefused(address);
  ExpectRefused(address);
}

TEST(AForkedChildDoesNotAdoptItsParents) {
  const auto ours = Own("parents");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    check::Failures() = 0;
    ExpectRefused(ours.get());
    _exit(check::Failures());
  }
  int outcome = 1;
  EXPECT_EQ(waitpid(child, &outcome, 0), child);
  EXPECT_EQ(outcome, 0);
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

TEST(TheStructsCommModeIsTheCommunicators) {
  EXPECT_EQ(Adopted(&engines_own, COMM_MULTI_THREAD)->spec().comm_mode, COMM_MULTI_THREAD);
  EXPECT_EQ(Adopted(&engines_own)->spec().comm_mode, COMM_MULTI_PROCESS);
}

TEST(OtherBackendsTakeNoHandles) {
  for (const char* name : {"plain", "nonsense"}) ExpectRefused(&engines_own, name);
}

TEST(AnEnginesRefusalIsPassedOn) {
  std::shared_ptr<Communicator> found;
  const Status status = Registry::Instance().Adopt(nullptr, "engine", COMM_MULTI_PROCESS, &found);
  EXPECT_EQ(status.code(), collops::ERROR_HCCL_FAIL);
  EXPECT_EQ(status.message(), std::string("no handle"));
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
