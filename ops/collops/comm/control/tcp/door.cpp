#include "collops/comm/control/tcp/door.h"

#include <algorithm>
#include <utility>

#include "collops/comm/control/bootstrap/socket.h"

namespace collops::control::tcp {

void Door::Close() {
  listener_.Close();
  clients_.clear();
}

void Door::AcceptAll() {
  // A flood of strangers does not keep this thread from those who are there.
  for (size_t i = 0; i < kMostUnproven; ++i) {
    if (full() && !MakeRoom()) return;
    UniqueFd socket = listener_.Accept();
    if (!socket.valid()) return;
    clients_.push_back({Challenge(Connection(std::move(socket)), &secret_),
                        Deadline::After(kPatienceS), Deadline::After(kSilenceS),
                        Deadline::After(kProofS)});
  }
}

// A rank says who it is as soon as it is connected.
bool Door::MakeRoom() {
  if (!listener_.valid() || !Readable(listener_.socket())) return false;
  const auto strange = std::find_if(clients_.begin(), clients_.end(), [](const Client& client) {
    const bool refused = !client.challenge.refusal().ok();
    const bool silent = client.silence.Passed() && (refused || !client.challenge.greeted());
    return silent || client.proof.Passed();
  });
  if (strange == clients_.end()) return false;
  clients_.erase(strange);
  return true;
}

bool Door::Next(std::vector<Proven>* proven) {
  AcceptAll();
  for (auto client = clients_.begin(); client != clients_.end();) {
    Challenge& challenge = client->challenge;
    const bool was_refused = !challenge.refusal().ok();
    const Proof proof = challenge.Step();
    if (proof == Proof::kGiven) {
      proven->push_back({std::move(challenge.connection()), challenge.claim()});
      clients_.erase(client);
      return true;
    }
    if (proof == Proof::kRefused && !was_refused) last_refusal_ = challenge.refusal();
    // Who was refused is kept until he has read why: closing at once could take it from him.
    const bool over = proof == Proof::kRefused && !challenge.connection().alive();
    client = over || client->patience.Passed() ? clients_.erase(client) : client + 1;
  }
  return false;
}

void Door::AddPolled(std::vector<pollfd>* polled) const {
  if (listener_.valid() && !full()) polled->push_back({listener_.socket(), POLLIN, 0});
  for (const Client& client : clients_) {
    polled->push_back(client.challenge.connection().Polled());
  }
}

Status Door::last_refusal() const {
  COLLOPS_CHECK_ARG(
      listener_.turned_away() == 0, ERROR_RT_FAIL,
      "this process turned clients away because it has too many open files: raise the limit "
      "(ulimit -n)");
  return last_refusal_;
}

}  // namespace collops::control::tcp
