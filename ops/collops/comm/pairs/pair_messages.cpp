#include "collops/comm/pairs/pair_messages.h"

#include <cstring>

namespace collops {
namespace {

// A peer's text may lack an end.
template <size_t kBytes>
std::string TypeName(const char (&type)[kBytes], DType dtype) {
  const std::string name(type, strnlen(type, kBytes));
  return name.empty() ? Name(dtype) : name;
}

}  // namespace

const char* WordOf(const Transfer& transfer) {
  const bool sends = transfer.way == Transfer::kSend;
  if (transfer.method == nullptr) return sends ? "Send" : "Recv";
  return sends ? "send" : "recv";
}

const char* CallOf(const Transfer& transfer) {
  return transfer.method == nullptr ? WordOf(transfer) : transfer.method;
}

std::string DescribeMismatch(const PairGroup& group, int sender, int receiver,
                             const Envelope& envelope, const Transfer& receive) {
  const char* const calls = receive.method == nullptr ? "Send and Recv" : "send and recv";
  return Concat(calls, ": message ", envelope.number, " (tag ", envelope.tag,
                "): ", group.NameRank(sender), " sends ", envelope.elements, " ",
                TypeName(envelope.type, envelope.dtype), ", ", group.NameRank(receiver),
                " receives ", receive.elements, " ", TypeName(receive.type, receive.dtype),
                ": both must state the same dtype and number of elements");
}

Status RefusedBy(const PairGroup& group, const Transfer& transfer, int refuser, uint64_t number,
                 int32_t tag, const std::string& reason) {
  return Error(ERROR_RANK_MISMATCH, CallOf(transfer), ": ", group.NameRank(refuser),
               " refused message ", number, " (tag ", tag,
               "): ", reason.empty() ? "its reason was overwritten by later ones" : reason);
}

std::string DescribeOpen(const PairGroup& group, const OpenTransfer& open) {
  const Transfer& transfer = open.transfer;
  const std::string what = Concat(WordOf(transfer), " of ", transfer.elements, " ",
                                  TypeName(transfer.type, transfer.dtype));
  const std::string tag = Concat(" (tag ", transfer.tag, ")");
  if (open.moved > 0) {
    return Concat(what, transfer.way == Transfer::kSend ? " to " : " from ",
                  group.NameRank(transfer.way == Transfer::kSend ? transfer.peer : open.source),
                  tag, " stopped after ", open.moved, " of ", transfer.bytes, " bytes");
  }
  if (transfer.way == Transfer::kSend) {
    return Concat(what, " to ", group.NameRank(transfer.peer), tag,
                  ": its receiver has not received it");
  }
  if (transfer.peer == kAnySource) {
    return Concat(what, " from any rank", tag, ": no rank has sent such a message");
  }
  return Concat(what, " from ", group.NameRank(transfer.peer), tag,
                ": no such message has arrived");
}

}  // namespace collops
