// Handles of an engine's own: the registry with a backend that takes them. This program defines
// FindBackend, so the linker leaves the real table out.
#include <memory>
#include <string>

#include "check.h"
#include "comm/backends/backend_table.h"
#include "comm/registry.h"

namespace {

using collops::Backend;
using collops::Communicator;
using collops::CommunicatorSpec;
using collops::Registry;
using collops::Status;

class FakeCommunicator : public Communicator {
 public:
  using Communicator::Communicator;
  Status Connect() override { return {}; }
  Status Supports(collops::CallKind, collops::DType, collops::ReduceOp) const override {
    return {};
  }
  Status Refuse(collops::CallKind, const Status&) override { return {}; }
  Status AllocateWindow(int64_t, std::shared_ptr<collops::Window>*) override { return {}; }
  void Abort(const std::string&) override { failed_ = true; }
  void Close(const std::string&) override { failed_ = true; }
  bool failed() const override { return failed_; }

 protected:
  Status DoAllGatherV(const collops::AllGatherVCall&) override { return {}; }
  Status DoReduceScatterV(const collops::ReduceScatterVCall&) override { return {}; }
  Status DoBarrier() override { return {}; }

 private:
  bool failed_ = false;
};

Status Available() {
  return {};
}

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  *communicator = std::make_shared<FakeCommunicator>(spec);
  return {};
}

int adoptions = 0;

Status Adopt(void* handle, std::shared_ptr<Communicator>* communicator) {
  if (handle == nullptr) return collops::Error(collops::ERROR_HCCL_FAIL, "no handle");
  ++adoptions;
  CommunicatorSpec spec;
  spec.backend = "engine";
  spec.comm_domain = "adopted";
  return Create(spec, communicator);
}

int engines_own = 0;  // its address is a handle

std::shared_ptr<Communicator> Adopted(void* handle) {
  std::shared_ptr<Communicator> found;
  EXPECT_EQ(Registry::Instance().Adopt(handle, "engine", &found).message(), std::string());
  return found;
}

}  // namespace

namespace collops {

const Backend* FindBackend(const std::string& name) {
  static constexpr Backend kEngine{"engine", Available, Create, nullptr, Adopt};
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

TEST(OursAreFoundAndNeverAdopted) {
  CommunicatorSpec spec;
  spec.backend = "engine";
  spec.comm_domain = "ours";
  spec.rank_size = 2;
  std::shared_ptr<Communicator> ours;
  EXPECT_TRUE(Registry::Instance().Get(spec, &ours).ok());
  EXPECT_TRUE(Adopted(ours.get()) == ours);
  ours->Close("it is over");
  spec.comm_domain = "next";
  std::shared_ptr<Communicator> next;
  EXPECT_TRUE(Registry::Instance().Get(spec, &next).ok());  // lets go of the closed one
  std::shared_ptr<Communicator> found;
  const Status status = Registry::Instance().Adopt(ours.get(), "engine", &found);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), "is no live communicator of this process");
  EXPECT_TRUE(found == nullptr);
}

TEST(OtherBackendsTakeNoHandles) {
  for (const char* name : {"plain", "nonsense"}) {
    std::shared_ptr<Communicator> found;
    const Status status = Registry::Instance().Adopt(&engines_own, name, &found);
    EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
    EXPECT_CONTAINS(status.message(), "is no live communicator of this process");
  }
}

TEST(AnEnginesRefusalIsPassedOn) {
  std::shared_ptr<Communicator> found;
  const Status status = Registry::Instance().Adopt(nullptr, "engine", &found);
  EXPECT_EQ(status.code(), collops::ERROR_HCCL_FAIL);
  EXPECT_EQ(status.message(), std::string("no handle"));
}

TEST(TheEndOfTheProcessClosesAdoptedOnesToo) {
  const auto adopted = Adopted(&engines_own);
  Registry::Instance().CloseAll("the end");
  EXPECT_TRUE(adopted->failed());
}
