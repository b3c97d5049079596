#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace [[gnu::visibility("default")]] collops {

// A call's two names, texts that live as long as the process: the operator's, by which the ranks
// know the call, and the one that this rank's messages and traces say: the plain level's method,
// where there is one.
struct CallName {
  CallName(const char* operation) : op(operation), called(operation) {}
  CallName(const char* operation, const char* method) : op(operation), called(method) {}

  const char* op;
  const char* called;
};

// What the plain level's messages say of a term, in place of "k is 64 on rank 0 and 32 on rank 1":
// "x has k = 64 columns on rank 0 and 32 on rank 1".
struct TermWords {
  const char* term;
  const char* says;
  const char* unit = "";          // after the first value
  const char* advice = "";        // at the end, for a list
  const char* const* names = {};  // of a number's values, from 0 on
  int num_names = 0;
};

// What the ranks must agree on before a call moves data: the operator's name, then terms and lists,
// compared in the order in which they were added. A first signal carries two words of it: `digest`
// of what is equal on every rank, and `balance` of what is not (lists of a group, counts of pairs),
// which adds up to 0 over ranks that agree. A value; the lists stay the caller's and must outlive
// it. More terms than the capacity below are a programming error.
class Agreement {
 public:
  // `op` must live as long as the process.
  explicit Agreement(const char* op);

  const char* op() const { return op_; }
  // What messages call it: the plain level's method, where there is one, else the operator.
  const char* called() const { return *method_ == '\0' ? op_ : method_; }
  CallName name() const { return {op_, called()}; }
  // An agreement of the same call, without terms.
  Agreement WithoutTerms() const {
    return Agreement(op_).InPlainWords(method_, row_elements_, words_of_terms_,
                                       num_words_of_terms_);
  }

  Agreement& Equal(const char* name, int64_t value);
  // Compares the first kTextBytes of a longer text.
  Agreement& EqualText(const char* name, const char* text);
  // `uneven`: what the plain level's message adds where only dim 0 differs.
  Agreement& EqualShape(const char* name, const Shape& shape, const char* uneven = "");
  // A list of one number per rank.
  Agreement& EqualList(const char* name, const int64_t* values, int rank_size);
  // A list that some ranks share: `members` are these ranks; this rank is members[index].
  Agreement& EqualInGroup(const char* name, const std::vector<int>& members, int index,
                          const std::vector<int64_t>& values);
  // For every pair: send[q] of this rank must equal recv[rank] of rank q.
  Agreement& Pairwise(const char* send_name, const int64_t* send, const char* recv_name,
                      const int64_t* recv, int rank, int rank_size);

  // As Pairwise(), of numbers that are not encoded: ranks that agree in all else hear that `what`
  // differs.
  Agreement& PairwiseUnseen(const char* what, const int64_t* send, const int64_t* recv, int rank,
                            int rank_size);

  // For messages only: the plain level's method and its own words for terms, which live as long as
  // the process, and the elements of a row, in which the plain level counts.
  Agreement& InPlainWords(const char* method, int64_t row_elements,
                          const TermWords* words = nullptr, int num_words = 0);

  uint64_t digest() const { return digest_; }
  uint64_t balance() const { return balance_; }
  // Differs between agreements of this rank that Encode() writes differently.
  uint64_t identity() const {
    return digest_ ^ (balance_ * 0x9e3779b97f4a7c15ULL) ^ group_lists_ ^ plain_words_;
  }
  // The value of a number that was added, for tests and traces; `missing` if there is none.
  int64_t Value(const char* name, int64_t missing = 0) const;

  // All that Describe() needs of one rank, as numbers in shared memory. Of a long list the first
  // kMostListed numbers are there, and a hash of all, so that the encodings of a large group grow
  // with its ranks and not with their pairs.
  static int64_t EncodedBytes(int rank_size);
  void Encode(int64_t* to, int rank_size) const;
  // Adds the number of the user's call (0: not known) to an encoding. identity() ignores it.
  static void EncodeCall(int64_t* to, uint64_t call);
  static uint64_t EncodedCall(const int64_t* encoded);
  // What messages call the call of an encoding that a peer wrote.
  static std::string EncodedName(const int64_t* encoded);
  // A list of a group in an encoding that a peer wrote, by the order in which lists were added: a
  // copy of at most rank_size numbers, or kMostListed.
  static std::vector<int64_t> EncodedList(const int64_t* encoded, int number, int rank_size);

  // ERROR_RANK_MISMATCH with the first field in which two ranks differ, and both values; the same
  // text on every rank. `all`: copies of the ranks' encodings, whose contents are not trusted;
  // empty for a rank that has not arrived. `call`: the number of the call, if an encoding has no
  // user's number. `who` names a rank ("rank 2 (pid 77)").
  Status Describe(const std::vector<std::vector<int64_t>>& all, uint64_t call,
                  const std::function<std::string(int)>& who) const;
  // As Describe(), but Ok if no field differs among the ranks that have arrived.
  Status FindDifference(const std::vector<std::vector<int64_t>>& all, uint64_t call,
                        const std::function<std::string(int)>& who) const;

  static constexpr int kTextBytes = 24;
  static constexpr int kMaxTerms = 17;
  static constexpr int kMaxWords = 40;
  static constexpr int kMaxLists = 3;
  static constexpr int kMostListed = 512;

 private:
  enum class Kind { kNumber, kText, kShape, kList, kGroupList, kSends, kReceives };
  struct Term {
    const char* name;
    Kind kind;
    int begin;  // index of its first word, or of its list
    int count;
    const char* uneven = "";
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
  const char* unseen_ = "";  // what PairwiseUnseen() was told
  int64_t row_elements_ = 1;
  const TermWords* words_of_terms_ = nullptr;
  int num_words_of_terms_ = 0;
  int num_terms_ = 0;
  int num_words_ = 0;
  int num_lists_ = 0;
  Term terms_[kMaxTerms];
  List lists_[kMaxLists];
  int64_t words_[kMaxWords];
};

}  // namespace collops
