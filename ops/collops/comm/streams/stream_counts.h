#pragma once

#include <cstdint>

// What a call's counts, which every rank knows, say of the calls of a vendor's library that it can
// be made of.
namespace collops {

// Whether the blocks have one size and lie one after the other from 0 on.
bool AreEven(const int64_t* counts, const int64_t* displs, int rank_size);

bool AreZero(const int64_t* counts, int rank_size);

// Whether only one of several ranks has elements.
bool HasOneOwner(const int64_t* counts, int rank_size);

}  // namespace collops
