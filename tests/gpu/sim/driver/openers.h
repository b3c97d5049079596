#pragma once

#include <cstddef>

namespace collops_sim {

// Which processes have memory of cuMemAlloc open by its IPC handle: noted in a page of the file
// behind the memory's own pages, which begins at `at`.
void NoteOpener(int file, size_t at);
void ForgetOpener(int file, size_t at);
// A process that lives and has it open; 0 if there is none.
int FindOpener(int file, size_t at);

}  // namespace collops_sim
