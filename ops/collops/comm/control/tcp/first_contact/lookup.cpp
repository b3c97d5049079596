#include "collops/comm/control/tcp/first_contact/lookup.h"

#include <signal.h>

#include <atomic>
#include <system_error>
#include <thread>

namespace collops::control::tcp {

struct Lookup::Answer {
  Status status;
  SocketAddress address;
  std::atomic<bool> done{false};
};

Lookup::Lookup(const std::string& host, int port) : answer_(std::make_shared<Answer>()) {
  answer_->done = ParseNumeric(host, port, &answer_->address);
  if (answer_->done) return;
  const auto look = [host, port, answer = answer_] {
    answer->status = Resolve(host, port, &answer->address);
    answer->done.store(true, std::memory_order_release);
  };
  // Signals go to the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(look).detach();
  } catch (const std::system_error&) {
    look();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Lookup::Done(Status* status, SocketAddress* address) const {
  if (!answer_->done.load(std::memory_order_acquire)) return false;
  *status = answer_->status;
  if (status->ok()) *address = answer_->address;
  return true;
}

}  // namespace collops::control::tcp
