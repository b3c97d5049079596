// A limit of this process is its own error, not that of the peer whose window it cannot map.
#include <sys/resource.h>

#include <fstream>
#include <vector>

#include "collops/comm/pairs/transfer.h"
#include "collops/operators/framework/collective_terms.h"
#include "ranks.h"
#include "sanitized.h"

namespace {

using collops::Communicator;
using collops::DType;
using collops::Status;
using collops::Transfer;
using collops::Window;

constexpr int64_t kBytes = int64_t{256} << 20;

// Limits this process so that it cannot map kBytes more.
void LimitAddressSpace() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kBytes / 4;
  const rlimit limit = {bytes, bytes};
  EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

// Rank 0's block comes from its window, rank 1's is empty.
Status Gather(Communicator& communicator, const void* x, void* output) {
  const std::vector<int64_t> counts = {kBytes, 0};
  const std::vector<int64_t> displs = {0, kBytes};
  collops::CollectiveTerms terms;
  terms.dtype = "uint8";
  collops::Agreement agreement("AllGatherV");
  collops::AddTerms(terms, &agreement);
  agreement.EqualList("recvCounts", counts.data(), 2).EqualList("rdispls", displs.data(), 2);
  collops::AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kUInt8;
  call.x = x;
  call.output = output;
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  return communicator.AllGatherV(call);
}

Status Message(Communicator& communicator, const void* x, void* output) {
  Transfer transfer;
  transfer.way = communicator.rank() == 0 ? Transfer::kSend : Transfer::kRecv;
  transfer.peer = 1 - communicator.rank();
  transfer.dtype = DType::kUInt8;
  transfer.elements = transfer.bytes = kBytes;
  transfer.data = communicator.rank() == 0 ? const_cast<void*>(x) : output;
  return communicator.Messages("Send and Recv", &transfer, 1);
}

using Call = Status (*)(Communicator& communicator, const void* x, void* output);

void ExpectOwnError(Call call) {
  if (kSanitized) return std::puts("skipped: a sanitizer needs the address space"), void();
  ranks::Run(2, [call](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    std::shared_ptr<Window> window;
    std::vector<char> output(static_cast<size_t>(kBytes));
    if (rank == 0) {
      ASSERT_EQ(communicator.AllocateWindow(kBytes, &window).message(), "");
    } else {
      LimitAddressSpace();
    }
    const Status status =
        call(communicator, window == nullptr ? nullptr : window->data(), output.data());
    EXPECT_EQ(status.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_CONTAINS(status.message(), "the window of rank 0 (pid ");
    EXPECT_CONTAINS(status.message(), "cannot map 268435456 bytes");
    EXPECT_CONTAINS(status.message(), "ulimit -v");
    if (rank == 0) EXPECT_CONTAINS(status.message(), "(reported by rank 1)");
  });
}

}  // namespace

TEST(ACallThatCannotMapAWindowSaysSo) {
  ExpectOwnError(&Gather);
}

TEST(AMessageThatCannotMapAWindowSaysSo) {
  ExpectOwnError(&Message);
}
