#include "collops/comm/streams/stream_transfers.h"

#include <vector>

namespace collops {

Status CheckStreamTransfers(const char* name, const char* library, const Transfer* list, int count,
                            int rank) {
  std::vector<const Transfer*> own[2];
  for (int i = 0; i < count; ++i) {
    const Transfer& transfer = list[i];
    COLLOPS_CHECK_ARG(transfer.tag == 0, ERROR_UNSUPPORTED, name, ": ", library,
                      " has no tags: use tag 0, got ", transfer.tag);
    COLLOPS_CHECK_ARG(transfer.peer != kAnySource, ERROR_UNSUPPORTED, name, ": ", library,
                      " cannot receive from any rank: pass the source's");
    if (transfer.peer == rank) own[transfer.way].push_back(&transfer);
  }
  const auto& [sends, receives] = own;
  COLLOPS_CHECK_ARG(sends.size() == receives.size(), ERROR_INVALID_PARAM, name, ": this rank ",
                    rank, " sends ", sends.size(), " messages to itself and receives ",
                    receives.size(), " from itself: on a stream they must be in one call");
  for (size_t i = 0; i < sends.size(); ++i) {
    COLLOPS_CHECK_ARG(
        sends[i]->bytes == receives[i]->bytes && sends[i]->dtype == receives[i]->dtype,
        ERROR_INVALID_PARAM, name, ": message ", i, " of this rank ", rank, " to itself has ",
        sends[i]->elements, " elements of ", Name(sends[i]->dtype), ", but ", receives[i]->elements,
        " of ", Name(receives[i]->dtype), " are received");
  }
  return Ok();
}

}  // namespace collops
