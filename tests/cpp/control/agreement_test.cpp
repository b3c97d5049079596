// Agreement as two words and as a text, without running ranks.
#include "collops/comm/agreement.h"

#include <random>
#include <string>
#include <vector>

#include "check.h"

namespace {

using collops::Agreement;
using collops::Concat;
using collops::Status;
using List = std::vector<int64_t>;

std::string Who(int rank) {
  return "rank " + std::to_string(rank);
}

// What all ranks find once they have compared their agreements.
struct Verdict {
  bool agree = true;
  std::string text;
};

Verdict Judge(const std::vector<Agreement>& all) {
  const int size = static_cast<int>(all.size());
  Verdict verdict;
  uint64_t balance = 0;
  std::vector<List> encoded;
  for (const Agreement& one : all) {
    balance += one.balance();
    verdict.agree = verdict.agree && one.digest() == all[0].digest();
    encoded.emplace_back(static_cast<size_t>(Agreement::EncodedBytes(size)) / sizeof(int64_t));
    one.Encode(encoded.back().data(), size);
  }
  verdict.agree = verdict.agree && balance == 0;
  if (verdict.agree) return verdict;
  verdict.text = all[0].Describe(encoded, 7, Who).message();
  for (const Agreement& one : all) EXPECT_EQ(one.Describe(encoded, 7, Who).message(), verdict.text);
  return verdict;
}

// Random counts of pairs: received[r][q] is what r expects from q.
struct Pairs {
  std::vector<List> sent, received;

  Pairs(int size, std::mt19937* random) {
    std::uniform_int_distribution<int64_t> count(0, 3);
    sent.assign(static_cast<size_t>(size), List(static_cast<size_t>(size)));
    received = sent;
    for (size_t r = 0; r < sent.size(); ++r) {
      for (size_t q = 0; q < sent.size(); ++q) received[q][r] = sent[r][q] = count(*random);
    }
  }

  std::vector<Agreement> All() const {
    const int size = static_cast<int>(sent.size());
    std::vector<Agreement> all;
    for (int r = 0; r < size; ++r) {
      const auto rank = static_cast<size_t>(r);
      all.emplace_back("AllToAllV");
      all.back().Pairwise("sendCounts", sent[rank].data(), "recvCounts", received[rank].data(), r,
                          size);
    }
    return all;
  }
};

}  // namespace

// Else a rank does not publish the list anew after a call without one.
TEST(AListOfZerosChangesTheIdentity) {
  const List rows = {0};
  Agreement with("ReduceScatterV");
  with.EqualInGroup("rows", {1}, 0, rows);
  EXPECT_TRUE(with.identity() != Agreement("ReduceScatterV").identity());
}

TEST(EachRanksNumberOfTheCallIsReported) {
  const auto text_of = [](uint64_t first, uint64_t other) {
    std::vector<List> encoded;
    for (const uint64_t call : {first, other}) {
      Agreement agreement("Broadcast");
      agreement.Equal("rankRoot", static_cast<int64_t>(encoded.size()));
      encoded.emplace_back(static_cast<size_t>(Agreement::EncodedBytes(2)) / sizeof(int64_t));
      agreement.Encode(encoded.back().data(), 2);
      Agreement::EncodeCall(encoded.back().data(), call);
    }
    return Agreement("Broadcast").Equal("rankRoot", 0).Describe(encoded, 7, Who).message();
  };
  const std::string end = ": rankRoot is 0 on rank 0 and 1 on rank 1";
  const std::string begin = "Broadcast: the ranks disagree in ";
  EXPECT_EQ(text_of(3, 3), begin + "call 3" + end);
  EXPECT_EQ(text_of(3, 4), begin + "call 3 of rank 0 and call 4 of rank 1" + end);
  EXPECT_EQ(text_of(0, 0), begin + "call 7" + end);
}

// Groups {0, 2} and {1, 3}, each with its own lists.
TEST(ListsOfAGroupAreComparedInTheGroupAlone) {
  const auto make = [](int rank, const List& rows) {
    Agreement agreement("LinearParallel");
    agreement.EqualInGroup("gatherRows", {rank % 2, rank % 2 + 2}, rank / 2, rows);
    return agreement;
  };
  const List even = {5, 6};
  const List odd = {4, 7};
  EXPECT_TRUE(Judge({make(0, even), make(1, odd), make(2, even), make(3, odd)}).agree);
  EXPECT_EQ(Judge({make(0, even), make(1, odd), make(2, even), make(3, even)}).text,
            "LinearParallel: the ranks disagree in call 7: gatherRows[0] is 4 on rank 1 and 5 on "
            "rank 3");
}

// The encoding of a list grows no further, and a difference beyond is still one.
TEST(OfALongListTheFirstNumbersAreListed) {
  constexpr int kRanks = Agreement::kMostListed + 100;
  EXPECT_EQ(Agreement::EncodedBytes(kRanks), Agreement::EncodedBytes(8 * kRanks));
  const auto make = [](const List& counts) {
    return Agreement("AllGatherV").EqualList("recvCounts", counts.data(), kRanks);
  };
  const List counts(kRanks, 5);
  std::vector<Agreement> all(kRanks, make(counts));
  List early = counts;
  early[Agreement::kMostListed - 1] = 6;
  List late = counts;
  late[Agreement::kMostListed] = 6;
  all[2] = make(late);
  const std::vector<Agreement> later = all;
  all[1] = make(early);
  const auto text = [](const std::vector<Agreement>& ranks) {
    std::vector<List> encoded;
    for (const Agreement& one : ranks) {
      encoded.emplace_back(static_cast<size_t>(Agreement::EncodedBytes(kRanks)) / sizeof(int64_t));
      one.Encode(encoded.back().data(), kRanks);
    }
    return ranks[0].Describe(encoded, 7, Who).message();
  };
  EXPECT_EQ(text(all),
            "AllGatherV: the ranks disagree in call 7: recvCounts[511] is 5 on rank 0 and 6 on "
            "rank 1");
  EXPECT_EQ(text(later),
            "AllGatherV: the ranks disagree in call 7: recvCounts of rank 0 and of rank 2 are "
            "equal in their first 512 numbers, and differ in a later one");
}

TEST(ADifferenceThatIsNotFoundIsSaidToBeOne) {
  const auto said = [](int size) {
    const List rows(static_cast<size_t>(size), 3);
    Agreement one("Op");
    one.EqualList("rows", rows.data(), size);
    List encoded(static_cast<size_t>(Agreement::EncodedBytes(size)) / sizeof(int64_t));
    one.Encode(encoded.data(), size);
    return one.Describe(std::vector<List>(static_cast<size_t>(size), encoded), 7, Who).message();
  };
  EXPECT_EQ(said(2),
            "Op: the ranks disagree in call 7: the checksums of their arguments differ, although "
            "all arguments are equal");
  const int many = Agreement::kMostListed + 1;
  EXPECT_CONTAINS(said(many), Concat("although all arguments and the first ", many - 1,
                                     " numbers of each list are equal"));
}

TEST(APeersNumbersAreNotTrusted) {
  Agreement agreement("LinearParallel");
  const List rows = {1, 2};
  agreement.EqualText("dtype", "int8").EqualInGroup("gatherRows", {0, 1}, 0, rows);
  const auto words = static_cast<size_t>(Agreement::EncodedBytes(2)) / sizeof(int64_t);
  std::vector<List> all(2, List(words));
  agreement.Encode(all[0].data(), 2);
  for (const int64_t lie : {int64_t{-1}, INT64_MAX, int64_t{1} << 40}) {
    all[1].assign(words, lie);
    const Status status = agreement.Describe(all, 7, Who);
    EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_TRUE(Agreement::EncodedList(all[1].data(), 0, 2).size() <= 2);
  }
}

TEST(CountsOfPairsAddUpToNothingWhereTheyAgree) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const int size = 1 + trial % 7;
    Pairs pairs(size, &random);
    EXPECT_TRUE(Judge(pairs.All()).agree);
    const size_t r = random() % static_cast<size_t>(size);
    const size_t q = random() % static_cast<size_t>(size);
    pairs.sent[r][q] += 1;
    const Verdict verdict = Judge(pairs.All());
    EXPECT_FALSE(verdict.agree);
    EXPECT_CONTAINS(verdict.text, "sendCounts[" + std::to_string(q) + "] is ");
    EXPECT_CONTAINS(verdict.text, "and recvCounts[" + std::to_string(r) + "] is ");
  }
}

// One count too high and another too low: a sum of linear hashes would not see it.
TEST(FaultsDoNotCancel) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const int size = 2 + trial % 6;
    Pairs pairs(size, &random);
    const auto at = [&] { return random() % static_cast<size_t>(size); };
    pairs.sent[at()][at()] += 1;
    size_t r = at();
    size_t q = at();
    while (pairs.sent[r][q] == 0) {
      r = at();
      q = at();
    }
    pairs.sent[r][q] -= 1;
    bool right = true;
    for (size_t a = 0; a < pairs.sent.size(); ++a) {
      for (size_t b = 0; b < pairs.sent.size(); ++b) {
        right = right && pairs.sent[a][b] == pairs.received[b][a];
      }
    }
    EXPECT_EQ(Judge(pairs.All()).agree, right);
  }
}
