#include "collops/comm/control/tcp/tcp_bridge.h"

#include <utility>

#include "collops/comm/control/tcp/fields.h"

namespace collops::control::tcp {
namespace {

// The first byte of what a connection carries.
constexpr std::byte kNews{1};
constexpr std::byte kConfirmation{2};
// A confirmation is sent when so much has been taken.
constexpr uint64_t kConfirmedAtOnce = TcpBridge::kMostUnconfirmed / 4;

}  // namespace

TcpBridge::TcpBridge(int own_host, std::vector<Connection> connections) : own_host_(own_host) {
  ways_.reserve(connections.size());
  for (Connection& connection : connections) ways_.emplace_back(std::move(connection));
}

TcpBridge::~TcpBridge() {
  const Deadline deadline = Deadline::After(kFinishS);
  // All end their sending before one is waited for.
  for (Way& way : ways_) way.connection.Flush();
  for (Way& way : ways_) way.connection.Finish(deadline);
}

bool TcpBridge::Tell(int host, const Frame& frame) {
  Way& way = ways_[static_cast<size_t>(host)];
  if (way.sent - way.confirmed > kMostUnconfirmed) return false;
  Frame marked;
  marked.reserve(frame.size() + 1);
  marked.push_back(kNews);
  marked.insert(marked.end(), frame.begin(), frame.end());
  if (!way.connection.Send(marked)) return false;
  way.sent += marked.size();
  return true;
}

void TcpBridge::Confirm(Way* way) {
  if (way->taken - way->told < kConfirmedAtOnce) return;
  Frame frame = FieldWriter().Number(way->taken).frame();
  frame.insert(frame.begin(), kConfirmation);
  if (way->connection.Send(frame)) way->told = way->taken;
}

bool TcpBridge::TakeFrom(Way* way, Frame* frame) {
  Confirm(way);
  while (way->connection.Receive(frame)) {
    const std::byte kind = frame->empty() ? std::byte{0} : frame->front();
    if (!frame->empty()) frame->erase(frame->begin());
    if (kind == kNews) {
      way->taken += frame->size() + 1;
      Confirm(way);
      return true;
    }
    FieldReader fields(*frame);
    const uint64_t confirmed = fields.Number();
    const bool sound = kind == kConfirmation && fields.Done() && confirmed >= way->confirmed &&
                       confirmed <= way->sent;
    if (!sound) {
      way->connection.Break("sent an invalid frame");
      return false;
    }
    way->confirmed = confirmed;
  }
  return false;
}

bool TcpBridge::Take(int* host, Frame* frame) {
  for (size_t i = 0; i < ways_.size(); ++i) {
    const size_t from = next_;
    next_ = (next_ + 1) % ways_.size();
    if (static_cast<int>(from) == own_host_ || !TakeFrom(&ways_[from], frame)) continue;
    *host = static_cast<int>(from);
    return true;
  }
  return false;
}

bool TcpBridge::Lost(int host) const {
  return host != own_host_ && !ways_[static_cast<size_t>(host)].connection.alive();
}

std::string TcpBridge::WhyLost(int host) const {
  return ways_[static_cast<size_t>(host)].connection.ended().message();
}

void TcpBridge::AddPolled(std::vector<pollfd>* polled) const {
  for (const Way& way : ways_) {
    if (way.connection.alive()) polled->push_back(way.connection.Polled());
  }
}

}  // namespace collops::control::tcp
