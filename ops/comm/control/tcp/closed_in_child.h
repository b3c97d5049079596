#pragma once

namespace collops::control::tcp {

// A listening socket that a child of fork() must not keep: it would hold the port, and take
// connections that nobody answers. The child closes it, unless too many are open.
class ClosedInChild {
 public:
  ClosedInChild() = default;
  explicit ClosedInChild(int fd);
  ~ClosedInChild() { Release(); }
  ClosedInChild(ClosedInChild&& other) noexcept : slot_(other.slot_) { other.slot_ = -1; }
  ClosedInChild& operator=(ClosedInChild&& other) noexcept;

  // Before the descriptor is closed: its number may be another's at once.
  void Release();

 private:
  int slot_ = -1;
};

}  // namespace collops::control::tcp
