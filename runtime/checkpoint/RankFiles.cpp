// Appends runs to the file of data, and notes where they lie.
#include "runtime/checkpoint/RankFiles.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/checkpoint/Folder.h"

namespace zccrt {

RankFiles::RankFiles(const std::string &folder, int rank, std::span<char> buffer)
    : folder(folder), names{format("rank-%d.data", rank), format("rank-%d.json", rank)}, data(folder + "/" + names.data, buffer) {
}

void RankFiles::append(const Arena &from, const HeldRun &h) {
  SavedRun &r = index.emplace_back(h.saved);
  const auto [offset, hash] = data.append(from, h.offset, r.run.count * elemBytes(r.elem));
  r.offset = offset;
  r.hash = hash;
}

SavedFile RankFiles::finish() {
  names.bytes = data.bytes();
  data.finish();
  const std::string text = toJson(index);
  names.indexHash = hashBytes(text.data(), text.size());
  writeDurably(folder + "/" + names.index, text);
  return names;
}

} // namespace zccrt
