// The heads of hosts over UCX, and what travels with them.
#include <signal.h>

#include "collops/comm/backends/ucx/link.h"
#include "ucx/pairs.h"

namespace {

using collops::control::HostHead;
using collops::ucx::Heads;
using collops::ucx::HostMap;
using namespace ucx_tests;

// Ranks 0 and 1 on host 0, rank 2 on host 1.
HostMap MapOf(int rank) {
  collops::control::Group group;
  group.host = rank / 2;
  for (int r = 0; r < 3; ++r) {
    group.peers.emplace_back();
    group.peers.back().host = r / 2;
  }
  return HostMap(group, rank);
}

HostHead HeadOf(int rank, uint64_t step) {
  return {step, 100 + static_cast<uint64_t>(rank), 7 * step};
}

void Await(const Entry& e, Heads* heads, HostHead* head) {
  const auto took = [&] { return heads->Take(0, head); };
  EXPECT_EQ(e.worker.Until("a head", took, {}, Deadline::After(kLimitS)).message(), "");
}

void ExpectHead(const Entry& e, Heads* heads, uint64_t step) {
  HostHead head;
  Await(e, heads, &head);
  EXPECT_EQ(head.step, step);
  EXPECT_EQ(head.digest, 100 + static_cast<uint64_t>(heads->source(0)));
  EXPECT_EQ(head.balance, 7 * step);
}

void Send(const Entry& e, Heads* heads, uint64_t step) {
  EXPECT_EQ(heads->Send(HeadOf(e.me, step)).message(), "");
  const auto sent = [&] { return heads->Sent(); };
  EXPECT_EQ(e.worker.Until("sending", sent, {}, Deadline::After(kLimitS)).message(), "");
}

void RunHeads(const std::function<void(const Entry&, Heads*)>& body) {
  RunConnected(3, [&](const Entry& e) {
    {
      Heads heads(&e.worker, MapOf(e.me), e.me);
      EXPECT_EQ(heads.num_sources(), 1);
      EXPECT_EQ(heads.source(0), e.me == 2 ? 0 : 2);
      body(e, &heads);
    }
    Settle(e);
  });
}

}  // namespace

// Of a refused step one rank has sent its head, which nobody takes before the next step.
TEST(WhatWasSentForARefusedStepIsTakenFirst) {
  RunHeads([](const Entry& e, Heads* heads) {
    const int to = e.me == 2 ? 0 : 2;
    const std::vector<std::byte> old = DataOf(9, 9, 64);
    const std::vector<std::byte> now = DataOf(e.me, to, 32);
    heads->Attach(to, old.data(), 64);
    Send(e, heads, 1);
    // Attached, but never sent: that step was refused here.
    heads->Attach(to, old.data(), 64);
    heads->Clear();
    heads->Attach(to, now.data(), 32);
    Send(e, heads, 3);
    ExpectHead(e, heads, 1);
    ExpectHead(e, heads, 3);
    std::vector<std::byte> theirs(32);
    if (e.me == 1) return;  // nothing was attached for it
    EXPECT_EQ(heads->CopyTo(theirs.data(), heads->source(0), 32).message(), "");
    EXPECT_TRUE(theirs == DataOf(heads->source(0), e.me, 32));
  });
}

TEST(ALostSourceIsReported) {
  RunConnected(
      3,
      [](const Entry& e) {
        Heads heads(&e.worker, MapOf(e.me), e.me);
        Send(e, &heads, 1);
        ExpectHead(e, &heads, 1);
        if (e.me == 2) {
          for (const int peer : {0, 1}) EXPECT_EQ(e.mesh.Hear(2, peer), "die");
          raise(SIGKILL);
        }
        e.mesh.Say(e.me, 2, "die");
        const auto lost = [&] { return !heads.LossOf(0).ok(); };
        const Watch watch = {{}, [] { return collops::Ok(); }};
        EXPECT_EQ(e.worker.Until("the loss", lost, watch, Deadline::After(kLimitS)).message(), "");
        EXPECT_EQ(heads.LossOf(0).code(), collops::ERROR_PEER_LOST);
        HostHead head;
        EXPECT_FALSE(heads.Take(0, &head));
        EXPECT_EQ(heads.Send(HeadOf(e.me, 2)).message(), "");
        EXPECT_TRUE(heads.Sent());
      },
      2);
}
