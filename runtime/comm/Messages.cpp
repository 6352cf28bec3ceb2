// The chunks of collectives, as messages.
#include "runtime/comm/Messages.h"
#include "runtime/Elem.h"
#include "runtime/comm/Packed.h"

namespace zccrt {

void MessageComm::allReduce(Parts tensors, int elem, bool mean) {
  const int64_t size = elemBytes(elem), chunk = messageBytes / size * ranks;
  Packed packed(tensors, [](const Part &p) { return p.count; });
  for (int64_t at = 0; at < packed.total; at += chunk) {
    int64_t n = std::min(chunk, packed.total - at), share = (n + ranks - 1) / ranks;
    auto begin = [&](int r) { return at + std::min(n, r * share); };
    // f(tensor, byte in it, bytes, byte in the share) for what rank r adds up.
    auto shareOf = [&](int r, auto f) {
      packed.each(begin(r), begin(r + 1), [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
        f(p, offset * size, length * size, behind * size);
      });
    };
    for (int r = 0; r < ranks; ++r)
      if (r != rank) {
        shareOf(r, [&](auto &p, int64_t offset, int64_t bytes, int64_t) { send(from(p, offset), bytes, r); });
        shareOf(rank, [&](auto &, int64_t, int64_t bytes, int64_t behind) { receive(staged(r) + behind, bytes, r); });
      }
    by->finish();
    shareOf(rank, [&](auto &p, int64_t offset, int64_t bytes, int64_t behind) {
      addUp(from(p, offset), behind, to(p, offset), bytes / size, elem, mean);
    });
    for (int r = 0; r < ranks; ++r)
      if (r != rank) {
        shareOf(rank, [&](auto &p, int64_t offset, int64_t bytes, int64_t) { send(to(p, offset), bytes, r); });
        shareOf(r, [&](auto &p, int64_t offset, int64_t bytes, int64_t) { receive(to(p, offset), bytes, r); });
      }
    by->finish();
  }
}

void MessageComm::reduceScatter(Parts tensors, int elem, bool mean) {
  const int64_t size = elemBytes(elem), chunk = messageBytes / size;
  Packed packed(tensors, [this](const Part &p) { return piece(p.count); });
  for (int64_t at = 0; at < packed.total; at += chunk) {
    int64_t end = std::min(at + chunk, packed.total);
    packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
      for (int r = 0; r < ranks; ++r)
        if (r != rank) {
          send(from(p, (r * piece(p.count) + offset) * size), pieceLength(p.count, r, offset, length) * size, r);
          receive(staged(r) + behind * size, pieceLength(p.count, rank, offset, length) * size, r);
        }
    });
    by->finish();
    packed.each(at, end, [&](const Part &p, int64_t offset, int64_t length, int64_t behind) {
      int64_t mine = pieceLength(p.count, rank, offset, length);
      addUp(from(p, (rank * piece(p.count) + offset) * size), behind * size, to(p, offset * size), mine, elem, mean);
      by->zero(to(p, (offset + mine) * size), (length - mine) * size);
    });
  }
}

void Transport::gather(const Pieces &p) {
  const int64_t mine = p.bytes(p.rank);
  for (int r = 0; r < p.ranks; ++r)
    if (r != p.rank) {
      if (mine)
        send(p.mine, mine, r);
      if (const int64_t bytes = p.bytes(r))
        receive(p.of(r), bytes, r);
    } else if (mine && p.of(r) != p.mine) {
      copy(p.of(r), p.mine, mine);
    }
}

void MessageComm::allGather(Parts tensors, int elem) {
  const int64_t size = elemBytes(elem);
  Packed packed(tensors, [this](const Part &p) { return piece(p.count); });
  const int64_t chunk = by->gathersAtOnce() ? packed.total : messageBytes / size;
  for (int64_t at = 0; at < packed.total; at += chunk) {
    packed.each(at, std::min(at + chunk, packed.total), [&](const Part &p, int64_t offset, int64_t length, int64_t) {
      by->gather({from(p, offset * size), to(p, offset * size), piece(p.count) * size, length * size, (p.count - offset) * size,
                  rank, ranks});
    });
    by->finish();
  }
}

void MessageComm::bring(int from, const void *data, void *to, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += messageBytes) {
    const int64_t n = std::min(messageBytes, bytes - at);
    if (rank == from)
      send(static_cast<const char *>(data) + at, n, 0);
    else if (rank == 0)
      receive(static_cast<char *>(to) + at, n, from);
    by->finish();
  }
}

} // namespace zccrt
