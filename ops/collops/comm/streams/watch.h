#pragma once

namespace collops {

// What the watcher thread of this process looks at, every 100 ms.
class Watched {
 public:
  virtual ~Watched() = default;
  // Looks whether something must be ended. Called in the watcher's thread; must not wait.
  virtual void Look() = 0;
};

// Begins to look at `watched`, until Forget(). The first one starts the watcher thread, which
// sleeps while there is none, and ends with the process. Thread-safe.
void Watch(Watched* watched);
// On return nobody looks at it, nor will. Waits for a Look() that runs. Thread-safe; not from
// inside Look().
void Forget(Watched* watched);

}  // namespace collops
