// How many blocks the kernels of a rank may have, so that those of all ranks of a GPU are there at
// once.
#include <cstdint>
#include <vector>

#include "check.h"
#include "collops/comm/backends/cuda/communicator.h"
#include "kernels/cuda_noted_driver.h"

namespace {

using collops::cuda_peers::BlocksOf;
using collops::cuda_peers::FindPlace;
using collops::cuda_peers::NoteSharers;
using collops::cuda_peers::Place;

constexpr int kMostBlocks = 116;  // of a GPU with 132 multiprocessors

// A rank of this process on a GPU.
Place On(int device, int most_blocks = kMostBlocks) {
  collops::cuda::DriverApi api = noted_driver::Api();
  api.device_get_uuid = [](collops::cuda::Uuid* uuid, collops::cuda::Device of) {
    *uuid = {};
    uuid->bytes[0] = static_cast<char>(of);
    return collops::cuda::Result::kSuccess;
  };
  Place place = {};
  EXPECT_TRUE(FindPlace(api, device, most_blocks, &place).ok());
  return place;
}

}  // namespace

TEST(RanksOfAGpuShareItsBlocks) {
  const std::vector<Place> places = {On(4), On(5), On(4), On(4, 2)};
  EXPECT_EQ(BlocksOf(places, places[0]), 38);
  EXPECT_EQ(BlocksOf(places, places[1]), 116);
  EXPECT_EQ(BlocksOf(places, places[3]), 1);  // at least
}

// Pairs of a group of 8: the kernels of all four pairs may run at the same time.
TEST(SubgroupsOfAGpuShareItsBlocksToo) {
  const std::vector<Place> pair_before = {On(6), On(6)};
  EXPECT_EQ(BlocksOf(pair_before, pair_before[0]), 58);
  const std::vector<Place> whole(8, On(6));
  NoteSharers(whole, whole[0]);
  const std::vector<Place> pair = {On(6), On(6)};
  EXPECT_EQ(BlocksOf(pair, pair[0]), 14);
  // A rank of another process does not know of the group, but its partner says so.
  EXPECT_EQ(BlocksOf({pair_before[0], pair[1]}, pair_before[0]), 14);
  const std::vector<Place> other = {On(7), On(6)};
  EXPECT_EQ(BlocksOf(other, other[0]), 116);
}
