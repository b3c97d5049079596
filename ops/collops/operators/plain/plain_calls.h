#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "collops/operators/plain/plans.h"

namespace collops {

// The plans of one communicator's calls, by all that they are made from. A call like an earlier one
// is neither checked nor planned again, but for its memory. Any thread may ask; Ask(),
// AskLeaves() and Tell() wait for the other ranks.
class PlainCalls {
 public:
  struct Kept {
    std::shared_ptr<const PlainPlan> plan;
    Rows result;                             // the shape of the result
    DType result_dtype = DType::kUndefined;  // where it is not x's
    Rows rows;                               // the ranks' rows, one block after the other
    std::shared_ptr<void> beside;            // the caller's own
  };

  explicit PlainCalls(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

  // Null if no such call was planned before.
  std::shared_ptr<Kept> Find(const PlainCall& call);
  // Plans it.
  Status Make(const PlainCall& call, std::shared_ptr<Kept>* kept);
  // The same of a call that is not like a later one.
  Status MakeOnce(const PlainCall& call, std::shared_ptr<Kept>* kept) const;

  // What all ranks say of the tensors of a call without sizes, one rank after the other. Tells the
  // other ranks what is wrong here.
  Status Ask(const std::vector<const PlainCall*>& tensors, const Rows& mine, Rows* all);
  // Where the leaves of all ranks' partial sums begin, by what each says of its own.
  Status AskLeaves(const PlainCall& call, int64_t begin, Rows* begins);
  // The root's text on every rank of a scatterv.
  Status Tell(const PlainCall& call, const std::string& text, std::string* received);

 private:
  class Question;
  using Key = std::vector<int64_t>;
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  Status MakePlan(const PlainCall& call, Kept* kept) const;
  std::shared_ptr<const Question> QuestionOf(const std::vector<const PlainCall*>& tensors);

  static constexpr size_t kMostKept = 256;

  const std::shared_ptr<Communicator> communicator_;
  std::mutex mutex_;  // guards the two
  std::unordered_map<Key, std::shared_ptr<Kept>, Hash> kept_;
  std::unordered_map<Key, std::shared_ptr<const Question>, Hash> questions_;
};

}  // namespace collops
