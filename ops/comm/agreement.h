#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/tensor.h"

namespace collops {

// What the ranks must agree on before a call moves anything: the operator's name, then terms and
// lists, compared in the order in which they were added. Two words stand for all of it in a first
// signal: `digest` of what is equal on every rank, and `balance` of what is not (lists of a group,
// counts of pairs), which adds up to 0 over the ranks that agree. A value; lists that were added
// stay the caller's and outlive it. Terms beyond the capacity below are a programming error.
class Agreement {
 public:
  // `op` is a text that lives as long as the process.
  explicit Agreement(const char* op);

  const char* op() const { return op_; }

  Agreement& Equal(const char* name, int64_t value);
  // Of a longer text only the first kTextBytes are compared.
  Agreement& EqualText(const char* name, const char* text);
  Agreement& EqualShape(const char* name, const Shape& shape);
  // A list of one number per rank.
  Agreement& EqualList(const char* name, const int64_t* values, int rank_size);
  // A list that the members of a group share: `members` are ranks, this one is members[index].
  Agreement& EqualInGroup(const char* name, const std::vector<int>& members, int index,
                          const std::vector<int64_t>& values);
  // send[q] of this rank is recv[rank] of rank q, for every pair.
  Agreement& Pairwise(const char* send_name, const int64_t* send, const char* recv_name,
                      const int64_t* recv, int rank, int rank_size);

  // By what a user of the plain level knows the call: its method, a text that lives as long as the
  // call, and rows of so many elements. Only for messages, where every rank's call has such words.
  Agreement& InPlainWords(const char* method, int64_t row_elements);

  uint64_t digest() const { return digest_; }
  uint64_t balance() const { return balance_; }
  // Tells this rank's agreements apart by all that Encode() writes.
  uint64_t identity() const {
    return digest_ ^ (balance_ * 0x9e3779b97f4a7c15ULL) ^ group_lists_ ^ plain_words_;
  }
  // The value of a number that was added, for tests and traces; `missing` if there is none.
  int64_t Value(const char* name, int64_t missing = 0) const;

  // Everything that Describe() needs of one rank, as numbers in shared memory.
  static int64_t EncodedBytes(int rank_size);
  void Encode(int64_t* to, int rank_size) const;
  // Adds the number of the user's call, 0: not known. It is in no identity.
  static void EncodeCall(int64_t* to, uint64_t call);
  static uint64_t EncodedCall(const int64_t* encoded);
  // The operator's name, from an encoding that a peer wrote.
  static std::string EncodedOp(const int64_t* encoded);
  // A list of a group, by the order in which they were added, from an encoding that a peer wrote:
  // copied, of at most rank_size numbers.
  static std::vector<int64_t> EncodedList(const int64_t* encoded, int number, int rank_size);

  // ERROR_RANK_MISMATCH with the first field in which two ranks differ, and both values; the same
  // text on every rank. `all` are the ranks' encodings, copied: nothing in them is trusted; those
  // of ranks that have not come are empty. `call` is the number of the call where no user's is
  // known; `who` names a rank ("rank 2 (pid 77)").
  Status Describe(const std::vector<std::vector<int64_t>>& all, uint64_t call,
                  const std::function<std::string(int)>& who) const;
  // The same; Ok where no field differs among those who have come.
  Status FindDifference(const std::vector<std::vector<int64_t>>& all, uint64_t call,
                        const std::function<std::string(int)>& who) const;

  static constexpr int kTextBytes = 24;
  static constexpr int kMaxTerms = 16;
  static constexpr int kMaxWords = 40;
  static constexpr int kMaxLists = 2;

 private:
  enum class Kind { kNumber, kText, kShape, kList, kGroupList, kSends, kReceives };
  struct Term {
    const char* name;
    Kind kind;
    int begin;  // of its words, or the number of its list
    int count;
  };
  struct List {
    const int64_t* values;
    int64_t count;
    int64_t first_member;
  };
  class Comparison;

  void AddTerm(const char* name, Kind kind, int begin, int count);
  int AddWords(const int64_t* words, int count);
  int AddList(const int64_t* values, int64_t count, int64_t first_member);

  const char* op_;
  uint64_t digest_;
  uint64_t balance_ = 0;
  uint64_t group_lists_ = 0;
  uint64_t plain_words_ = 0;
  const char* method_ = "";
  int64_t row_elements_ = 1;
  int num_terms_ = 0;
  int num_words_ = 0;
  int num_lists_ = 0;
  Term terms_[kMaxTerms];
  List lists_[kMaxLists];
  int64_t words_[kMaxWords];
};

}  // namespace collops
