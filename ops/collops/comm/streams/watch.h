#pragma once

namespace collops {

// What the watcher of this process looks at, every 100 ms.
class Watched {
 public:
  virtual ~Watched() = default;
  // Looks whether something must be ended, and ends it. Called in the watcher's thread: reads the
  // host's memory and clock only, as a call of a device's library may wait for what must be ended.
  virtual void Look() = 0;
  // Asks the device for what Look() cannot see. Called in another thread, which a new one replaces
  // while this waits in a library.
  virtual void Ask() = 0;
};

// Begins to look at `watched`, and to ask it, until Forget(). The first one starts the watcher's
// threads, which sleep while there is none, and end with the process. Thread-safe.
void Watch(Watched* watched);
// On return nobody looks at it or asks it, nor will. Waits for a Look() or Ask() that runs.
// Thread-safe; not from inside either.
void Forget(Watched* watched);

}  // namespace collops
