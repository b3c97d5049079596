#include "collops/comm/agreement.h"

#include <algorithm>
#include <cstring>

namespace collops {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

uint64_t Mix(uint64_t hash, const int64_t* words, int64_t count) {
  for (int64_t i = 0; i < count; ++i) hash = Mix(hash, static_cast<uint64_t>(words[i]));
  return hash;
}

// A summand of a balance. It must not be linear in its arguments: a sum of linear hashes cancels.
uint64_t Summand(uint64_t a, uint64_t b, uint64_t value) {
  uint64_t hash = Mix(Mix(Mix(0x6c62272e07bb0142ULL, a), b), value);
  hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ULL;
  return hash ^ (hash >> 31);
}

// An encoding: the operator's name, the number of words, the words, the plain level's words and the
// number of the user's call; then the lists, each as its first member, its length, a hash of all
// its numbers and a place for every rank that is listed.
constexpr int kOpWords = 6;
constexpr int kOpBytes = kOpWords * static_cast<int>(sizeof(int64_t));
constexpr int kCountWord = kOpWords;
constexpr int kFirstWord = kOpWords + 1;
constexpr int kMethodWord = kFirstWord + Agreement::kMaxWords;
constexpr int kMethodBytes = 4 * static_cast<int>(sizeof(int64_t));
constexpr int kRowWord = kMethodWord + 4;
constexpr int kCallWord = kRowWord + 1;
constexpr int kFirstList = kCallWord + 1;
constexpr int kListHead = 3;

int64_t Listed(int64_t count) {
  return std::min<int64_t>(count, Agreement::kMostListed);
}

int64_t ListWords(int64_t rank_size) {
  return kListHead + Listed(rank_size);
}

// A text that a peer wrote: it may lack an end, or hold control characters.
std::string Readable(const int64_t* words, int bytes) {
  char text[kOpBytes];
  std::memcpy(text, words, static_cast<size_t>(bytes));
  std::string readable(text, strnlen(text, static_cast<size_t>(bytes)));
  for (char& c : readable) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return readable;
}

}  // namespace

Agreement::Agreement(const char* op) : op_(op) {
  int64_t text[kOpWords] = {};
  const size_t length = strnlen(op, kOpBytes);
  std::memcpy(text, op, length);
  digest_ = Mix(length, text, (static_cast<int64_t>(length) + 7) / 8);
}

void Agreement::AddTerm(const char* name, Kind kind, int begin, int count) {
  terms_[num_terms_++] = {name, kind, begin, count, ""};
}

int Agreement::AddWords(const int64_t* words, int count) {
  const int begin = num_words_;
  std::memcpy(words_ + begin, words, static_cast<size_t>(count) * sizeof(int64_t));
  digest_ = Mix(digest_, words, count);
  num_words_ += count;
  return begin;
}

int Agreement::AddList(const int64_t* values, int64_t count, int64_t first_member) {
  lists_[num_lists_] = {values, count, first_member};
  return num_lists_++;
}

Agreement& Agreement::Equal(const char* name, int64_t value) {
  AddTerm(name, Kind::kNumber, AddWords(&value, 1), 1);
  return *this;
}

Agreement& Agreement::EqualText(const char* name, const char* text) {
  constexpr int kWords = kTextBytes / 8;
  int64_t words[kWords] = {};
  std::memcpy(words, text, strnlen(text, kTextBytes));
  AddTerm(name, Kind::kText, AddWords(words, kWords), kWords);
  return *this;
}

Agreement& Agreement::EqualShape(const char* name, const Shape& shape, const char* uneven) {
  int64_t words[1 + kMaxDims] = {shape.num_dims};
  for (int i = 0; i < std::min(shape.num_dims, kMaxDims); ++i) words[1 + i] = shape[i];
  AddTerm(name, Kind::kShape, AddWords(words, 1 + kMaxDims), 1 + kMaxDims);
  terms_[num_terms_ - 1].uneven = uneven;
  return *this;
}

Agreement& Agreement::EqualList(const char* name, const int64_t* values, int rank_size) {
  digest_ = Mix(digest_, values, rank_size);
  AddTerm(name, Kind::kList, AddList(values, rank_size, 0), rank_size);
  return *this;
}

Agreement& Agreement::EqualInGroup(const char* name, const std::vector<int>& members, int index,
                                   const std::vector<int64_t>& values) {
  const auto size = static_cast<int64_t>(members.size());
  const auto first = static_cast<uint64_t>(members.front());
  const uint64_t hash =
      Mix(static_cast<uint64_t>(num_lists_), values.data(), static_cast<int64_t>(values.size()));
  // The factors add up to 0: 1 for every member but the last, 1 - size for the last.
  const int64_t factor = index + 1 == size ? 1 - size : 1;
  group_lists_ += hash + 1;  // a list of zeros has hash 0, and is there all the same
  balance_ += static_cast<uint64_t>(factor) * Summand(first, values.size(), hash);
  const int list = AddList(values.data(), static_cast<int64_t>(values.size()), members.front());
  AddTerm(name, Kind::kGroupList, list, static_cast<int>(size));
  return *this;
}

Agreement& Agreement::Pairwise(const char* send_name, const int64_t* send, const char* recv_name,
                               const int64_t* recv, int rank, int rank_size) {
  const auto self = static_cast<uint64_t>(rank);
  for (int r = 0; r < rank_size; ++r) {
    const auto peer = static_cast<uint64_t>(r);
    balance_ += Summand(self, peer, static_cast<uint64_t>(send[r]));
    balance_ -= Summand(peer, self, static_cast<uint64_t>(recv[r]));
  }
  AddTerm(send_name, Kind::kSends, AddList(send, rank_size, 0), rank_size);
  AddTerm(recv_name, Kind::kReceives, AddList(recv, rank_size, 0), rank_size);
  return *this;
}

Agreement& Agreement::PairwiseUnseen(const char* what, const int64_t* send, const int64_t* recv,
                                     int rank, int rank_size) {
  const auto self = static_cast<uint64_t>(rank);
  const auto apart = static_cast<uint64_t>(rank_size);  // from the pairs of Pairwise()
  for (int r = 0; r < rank_size; ++r) {
    const auto peer = static_cast<uint64_t>(r);
    balance_ += Summand(self + apart, peer, static_cast<uint64_t>(send[r]));
    balance_ -= Summand(peer + apart, self, static_cast<uint64_t>(recv[r]));
  }
  unseen_ = what;
  return *this;
}

Agreement& Agreement::InPlainWords(const char* method, int64_t row_elements, const TermWords* words,
                                   int num_words) {
  method_ = method;
  row_elements_ = row_elements;
  words_of_terms_ = words;
  num_words_of_terms_ = num_words;
  plain_words_ = Mix(reinterpret_cast<uintptr_t>(method), static_cast<uint64_t>(row_elements));
  return *this;
}

int64_t Agreement::Value(const char* name, int64_t missing) const {
  for (int i = 0; i < num_terms_; ++i) {
    const Term& term = terms_[i];
    if (term.kind == Kind::kNumber && std::strcmp(term.name, name) == 0) return words_[term.begin];
  }
  return missing;
}

int64_t Agreement::EncodedBytes(int rank_size) {
  return (kFirstList + kMaxLists * ListWords(rank_size)) * int64_t{sizeof(int64_t)};
}

void Agreement::Encode(int64_t* to, int rank_size) const {
  std::memset(to, 0, kOpBytes);
  std::memcpy(to, op_, strnlen(op_, kOpBytes));
  to[kCountWord] = num_words_;
  std::memcpy(to + kFirstWord, words_, static_cast<size_t>(num_words_) * sizeof(int64_t));
  std::memset(to + kMethodWord, 0, kMethodBytes);
  std::memcpy(to + kMethodWord, method_, strnlen(method_, kMethodBytes));
  to[kRowWord] = row_elements_;
  for (int i = 0; i < num_lists_; ++i) {
    int64_t* list = to + kFirstList + i * ListWords(rank_size);
    list[0] = lists_[i].first_member;
    list[1] = lists_[i].count;
    const bool cut = rank_size > kMostListed;
    list[2] = cut ? static_cast<int64_t>(Mix(0, lists_[i].values, lists_[i].count)) : 0;
    std::copy_n(lists_[i].values, Listed(std::min<int64_t>(lists_[i].count, rank_size)),
                list + kListHead);
  }
}

void Agreement::EncodeCall(int64_t* to, uint64_t call) {
  // A rank that describes this agreement may read it at the same time.
  __atomic_store_n(to + kCallWord, static_cast<int64_t>(call), __ATOMIC_RELAXED);
}

uint64_t Agreement::EncodedCall(const int64_t* encoded) {
  return static_cast<uint64_t>(__atomic_load_n(encoded + kCallWord, __ATOMIC_RELAXED));
}

std::string Agreement::EncodedName(const int64_t* encoded) {
  const std::string method = Readable(encoded + kMethodWord, kMethodBytes);
  return method.empty() ? Readable(encoded, kOpBytes) : method;
}

std::vector<int64_t> Agreement::EncodedList(const int64_t* encoded, int number, int rank_size) {
  const int64_t* list = encoded + kFirstList + number * ListWords(rank_size);
  const int64_t claimed = list[1];  // read once: the peer may change it
  const int64_t count = Listed(std::clamp<int64_t>(claimed, 0, rank_size));
  return std::vector<int64_t>(list + kListHead, list + kListHead + count);
}

// Finds the first difference among the encodings of all ranks.
class Agreement::Comparison {
 public:
  Comparison(const Agreement& own, const std::vector<std::vector<int64_t>>& all, uint64_t call,
             const std::function<std::string(int)>& who)
      : own_(own), all_(all), size_(static_cast<int>(all.size())), call_(call), who_(who) {
    while (first_ < size_ && !Has(first_)) ++first_;
    for (int r = first_; r < size_; ++r) {
      in_plain_words_ = in_plain_words_ && (!Has(r) || !Method(r).empty());
    }
  }

  Status Run() const {
    if (first_ == size_) return Ok();
    for (int r = first_ + 1; r < size_; ++r) {
      if (!Has(r) || Op(r) == Op(first_)) continue;
      const char* const field = in_plain_words_ ? "the call is" : "the operator is";
      return Differ(field, Called(first_), first_, field, Called(r), r);
    }
    for (int i = 0; i < own_.num_terms_; ++i) COLLOPS_RETURN_IF_ERROR(CompareTerm(own_.terms_[i]));
    return Ok();
  }

  // For agreements whose digests differ although Run() finds no difference.
  Status DifferByDigest() const {
    if (*own_.unseen_ != '\0') {
      return Error(ERROR_RANK_MISMATCH, Called(first_), ": the ranks disagree in ",
                   Calls(first_, first_), ": ", own_.unseen_, " differ between two ranks");
    }
    const std::string listed =
        size_ > kMostListed ? Concat(" and the first ", kMostListed, " numbers of each list") : "";
    return Error(
        ERROR_RANK_MISMATCH, Called(first_), ": the ranks disagree in ", Calls(first_, first_),
        ": the checksums of their arguments differ, although all arguments", listed, " are equal");
  }

 private:
  bool Has(int rank) const { return !all_[static_cast<size_t>(rank)].empty(); }
  const int64_t* Of(int rank) const { return all_[static_cast<size_t>(rank)].data(); }
  std::string Op(int rank) const { return Readable(Of(rank), kOpBytes); }
  std::string Method(int rank) const { return Readable(Of(rank) + kMethodWord, kMethodBytes); }
  std::string Called(int rank) const { return in_plain_words_ ? Method(rank) : Op(rank); }
  uint64_t CallOf(int rank) const {
    const uint64_t call = EncodedCall(Of(rank));
    return call == 0 ? call_ : call;
  }
  // "call 3", or both numbers where a rank has made more calls than another.
  std::string Calls(int a, int b) const {
    if (CallOf(a) == CallOf(b)) return Concat("call ", CallOf(a));
    return Concat("call ", CallOf(a), " of rank ", a, " and call ", CallOf(b), " of rank ", b);
  }

  // Counts of elements that the plain level counts in rows.
  static bool IsCounts(const Term& term) {
    return std::strcmp(term.name, "recvCounts") == 0 || std::strcmp(term.name, "sendCounts") == 0;
  }
  std::string NameOf(const Term& term) const {
    if (!in_plain_words_) return term.name;
    if (IsCounts(term)) return "sizes";
    if (std::strcmp(term.name, "reduceType") == 0) return "op";
    if (std::strcmp(term.name, "rankRoot") == 0) return "root";
    return term.name;
  }
  // The plain level's own words for a term, or null.
  const TermWords* WordsOf(const Term& term) const {
    for (int i = 0; in_plain_words_ && i < own_.num_words_of_terms_; ++i) {
      const TermWords& words = own_.words_of_terms_[i];
      if (std::strcmp(words.term, term.name) == 0) return &words;
    }
    return nullptr;
  }

  const int64_t* Words(int rank, const Term& term) const {
    return Of(rank) + kFirstWord + term.begin;
  }
  const int64_t* List(int rank, const Term& term) const {
    return Of(rank) + kFirstList + term.begin * ListWords(size_);
  }
  int64_t Length(int rank, const Term& term) const {
    return std::clamp<int64_t>(List(rank, term)[1], 0, size_);
  }
  int FirstMember(int rank, const Term& term) const {
    return static_cast<int>(std::clamp<int64_t>(List(rank, term)[0], 0, size_ - 1));
  }
  // The first rank that has arrived of those that share this list.
  int FirstOfGroup(int rank, const Term& term) const {
    for (int r = first_; r < rank; ++r) {
      if (Has(r) && FirstMember(r, term) == FirstMember(rank, term)) return r;
    }
    return rank;
  }
  std::string Entry(int rank, const Term& term, int64_t i) const {
    if (i >= Length(rank, term)) return "missing";
    const int64_t unit = in_plain_words_ && IsCounts(term) ? Of(rank)[kRowWord] : 1;
    return std::to_string(List(rank, term)[kListHead + i] / std::max<int64_t>(unit, 1));
  }

  std::string Show(const Term& term, const int64_t* words) const {
    if (term.kind == Kind::kText) return Readable(words, kTextBytes);
    if (term.kind == Kind::kNumber) {
      const TermWords* const own = WordsOf(term);
      const bool is_named = own != nullptr && words[0] >= 0 && words[0] < own->num_names;
      return is_named ? own->names[words[0]] : std::to_string(words[0]);
    }
    std::string shown;
    for (int i = 1; i <= std::clamp<int64_t>(words[0], 0, kMaxDims); ++i) {
      const bool may_differ = words[i] == -1;
      shown += Concat(i == 1 ? "" : ", ", may_differ ? "*" : std::to_string(words[i]));
    }
    return Concat("[", shown, "]");
  }
  // What to call instead, where only dim 0 differs.
  std::string Advice(const Term& term, int a, int b) const {
    if (!in_plain_words_ || term.kind != Kind::kShape) return "";
    const int64_t* const first = Words(a, term);
    const int64_t* const other = Words(b, term);
    const bool same = first[0] == other[0] && first[0] >= 1 &&
                      std::equal(first + 2, first + 1 + kMaxDims, other + 2);
    return same ? term.uneven : "";
  }

  Status CompareTerm(const Term& term) const {
    if (term.kind == Kind::kSends) return ComparePairs(term, (&term)[1]);
    if (term.kind == Kind::kReceives) return Ok();
    for (int r = first_ + 1; r < size_; ++r) {
      if (!Has(r)) continue;
      if (term.kind == Kind::kList) {
        COLLOPS_RETURN_IF_ERROR(CompareLists(term, first_, r));
      } else if (term.kind == Kind::kGroupList) {
        COLLOPS_RETURN_IF_ERROR(CompareLists(term, FirstOfGroup(r, term), r));
      } else {
        const std::string first = Show(term, Words(first_, term));
        const std::string other = Show(term, Words(r, term));
        if (first == other) continue;
        const TermWords* const own = WordsOf(term);
        const std::string field = own != nullptr ? own->says : Concat(NameOf(term), " is");
        const std::string unit = own != nullptr ? own->unit : "";
        const Status differs = Differ(field, first + unit, first_, field, other, r);
        return Error(differs.code(), differs.message(), Advice(term, first_, r));
      }
    }
    return Ok();
  }

  Status CompareLists(const Term& term, int a, int b) const {
    const int64_t listed = Listed(std::max(Length(a, term), Length(b, term)));
    for (int64_t i = 0; i < listed; ++i) {
      const TermWords* const own = WordsOf(term);
      const std::string name = own != nullptr ? own->says : NameOf(term);
      const std::string field = Concat(name, "[", i, "] is");
      const std::string first = Entry(a, term, i);
      const std::string other = Entry(b, term, i);
      if (first == other) continue;
      const Status differs = Differ(field, first, a, field, other, b);
      return Error(differs.code(), differs.message(), own != nullptr ? own->advice : "");
    }
    if (size_ <= kMostListed || List(a, term)[2] == List(b, term)[2]) return Ok();
    return Error(ERROR_RANK_MISMATCH, Called(a), ": the ranks disagree in ", Calls(a, b), ": ",
                 NameOf(term), " of ", who_(a), " and of ", who_(b), " are equal in their first ",
                 listed, " numbers, and differ in a later one");
  }

  Status ComparePairs(const Term& sends, const Term& receives) const {
    const int listed = static_cast<int>(Listed(size_));
    for (int a = 0; a < listed; ++a) {
      for (int b = 0; b < listed; ++b) {
        if (!Has(a) || !Has(b)) continue;
        const std::string sent = Entry(a, sends, b);
        const std::string received = Entry(b, receives, a);
        if (sent == received) continue;
        return Differ(Concat(sends.name, "[", b, "] is"), sent, a,
                      Concat(receives.name, "[", a, "] is"), received, b);
      }
    }
    return Ok();
  }

  Status Differ(const std::string& field, const std::string& value, int a,
                const std::string& other_field, const std::string& other, int b) const {
    const std::string named = other_field == field ? "" : Concat(other_field, " ");
    return Error(ERROR_RANK_MISMATCH, Called(a), ": the ranks disagree in ", Calls(a, b), ": ",
                 field, " ", value, " on ", who_(a), " and ", named, other, " on ", who_(b));
  }

  const Agreement& own_;
  const std::vector<std::vector<int64_t>>& all_;
  int size_;
  uint64_t call_;
  const std::function<std::string(int)>& who_;
  int first_ = 0;  // the first rank that has arrived
  bool in_plain_words_ = true;
};

Status Agreement::FindDifference(const std::vector<std::vector<int64_t>>& all, uint64_t call,
                                 const std::function<std::string(int)>& who) const {
  return Comparison(*this, all, call, who).Run();
}

Status Agreement::Describe(const std::vector<std::vector<int64_t>>& all, uint64_t call,
                           const std::function<std::string(int)>& who) const {
  const Comparison comparison(*this, all, call, who);
  COLLOPS_RETURN_IF_ERROR(comparison.Run());
  return comparison.DifferByDigest();
}

}  // namespace collops
