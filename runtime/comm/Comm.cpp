// What is the same whichever way the bytes go: pieces of tensors, agreeing on errors; and a job of one rank.
#include "runtime/comm/Comm.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

namespace zccrt {

int64_t Comm::pieceLength(int64_t count, int r, int64_t at, int64_t length) const {
  return std::clamp<int64_t>(std::min(count - r * piece(count), piece(count)) - at, 0, length);
}

void Comm::broadcast(void *data, int64_t bytes) {
  std::vector<char> all(bytes * ranks);
  exchange(data, bytes, all.data());
  std::memcpy(data, all.data(), bytes);
}

std::vector<std::string> Comm::exchangeText(const std::string &mine) {
  struct Text {
    char bytes[8192];
  };
  auto text = std::make_unique<Text>();
  mine.copy(text->bytes, sizeof text->bytes - 1);
  std::vector<Text> all(ranks);
  exchange(text.get(), sizeof *text, all.data());
  std::vector<std::string> texts;
  for (const Text &t : all)
    texts.push_back(t.bytes);
  return texts;
}

void Comm::agree(const std::string &error) {
  const int64_t length = error.size();
  std::vector<int64_t> lengths(ranks);
  exchange(&length, sizeof length, lengths.data());
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (!longest)
    return;
  std::string mine = error, all(longest * ranks, ' ');
  mine.resize(longest);
  exchange(mine.data(), longest, all.data());
  auto errorOf = [&](int r) { return all.substr(r * longest, lengths[r]); };
  std::vector<std::string> distinct;
  for (int r = 0; r < ranks; ++r) {
    const std::string text = errorOf(r);
    if (text.empty() || std::find(distinct.begin(), distinct.end(), text) != distinct.end())
      continue;
    distinct.push_back(text);
    if (rank != 0)
      continue;
    bool everyone = true;
    for (int other = 0; other < ranks; ++other)
      everyone &= text == errorOf(other);
    std::string who = everyone ? "" : format("rank %d: ", r);
    if (where.step >= 0)
      who += format("step %lld: ", static_cast<long long>(where.step));
    endDrawing();
    fprintf(stderr, "%s: error: %s%s\n", where.program.c_str(), who.c_str(), text.c_str());
  }
  throw AgreedFailure(distinct[0]);
}

namespace {

class SingleComm : public Comm {
public:
  SingleComm() : Comm(0, 1) {}
  void allReduce(Parts tensors, int elem, bool) override { copy(tensors, elem); }
  void allGather(Parts tensors, int elem) override { copy(tensors, elem); }
  void reduceScatter(Parts tensors, int elem, bool) override { copy(tensors, elem); }
  void bring(int, const void *, void *, int64_t) override {}
  void abort() override {}
  void barrier() override {}

private:
  static void copy(Parts tensors, int elem) {
    for (const Part &p : tensors)
      if (p.in != p.out)
        std::memcpy(p.out, p.in, p.count * elemBytes(elem));
  }
};

} // namespace

std::unique_ptr<Comm> singleRank() { return std::make_unique<SingleComm>(); }

} // namespace zccrt
