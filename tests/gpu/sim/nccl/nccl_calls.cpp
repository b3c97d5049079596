// Calls of a simulated libnccl, from its published signatures.
#include "nccl/call.h"
#include "nccl/group.h"

using collops_sim::Add;
using collops_sim::Call;
using collops_sim::Nccl;

extern "C" {

Nccl ncclGroupStart() {
  return collops_sim::StartGroup();
}
Nccl ncclGroupEnd() {
  const int planned = collops_sim::PlannedFailure("ncclGroupEnd");
  const Nccl result = collops_sim::EndGroup();
  return planned != 0 ? static_cast<Nccl>(planned) : result;
}

Nccl ncclAllGather(const void* send, void* receive, size_t count, int type, void* comm,
                   void* stream) {
  return Add("ncclAllGather", comm, {Call::kAllGather, send, receive, count, type}, stream);
}
Nccl ncclReduceScatter(const void* send, void* receive, size_t count, int type, int reduction,
                       void* comm, void* stream) {
  return Add("ncclReduceScatter", comm,
             {Call::kReduceScatter, send, receive, count, type, reduction}, stream);
}
Nccl ncclAllReduce(const void* send, void* receive, size_t count, int type, int reduction,
                   void* comm, void* stream) {
  return Add("ncclAllReduce", comm, {Call::kAllReduce, send, receive, count, type, reduction},
             stream);
}
Nccl ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* comm,
                   void* stream) {
  return Add("ncclBroadcast", comm, {Call::kBroadcast, send, receive, count, type, 0, root},
             stream);
}
Nccl ncclSend(const void* data, size_t count, int type, int peer, void* comm, void* stream) {
  return Add("ncclSend", comm, {Call::kSend, data, nullptr, count, type, 0, peer}, stream);
}
Nccl ncclRecv(void* data, size_t count, int type, int peer, void* comm, void* stream) {
  return Add("ncclRecv", comm, {Call::kRecv, nullptr, data, count, type, 0, peer}, stream);
}

}  // extern "C"
