// Finds the runs that have what is wanted, reads them and converts their elements.
#include "runtime/checkpoint/TensorReader.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include <algorithm>

namespace zccrt {

TensorReader::TensorReader(const Checkpoint &c) : checkpoint(c) {
  for (size_t i = 0; i < c.runs.size(); ++i)
    for (const SavedRun &r : c.runs[i]) {
      std::vector<Place> &places = tensors[r.tensor];
      if (!places.empty() && places[0].run->dims != r.dims)
        fail("checkpoint '%s' is damaged: '%s' has another shape in '%s' than in '%s'", c.folder.c_str(), r.tensor.c_str(),
             c.manifest.files[i].index.c_str(), c.manifest.files[places[0].file].index.c_str());
      places.push_back({&r, i});
    }
}

std::vector<TensorReader::Place> TensorReader::placesOf(const SavedRun &wanted) const {
  std::vector<Place> places;
  auto found = tensors.find(wanted.tensor);
  if (found == tensors.end())
    return places;
  const int owner = std::max(wanted.rank, 0) % std::max(checkpoint.manifest.ranks, 1);
  for (const Place &p : found->second)
    if (p.run->rank < 0 || p.run->rank == owner)
      places.push_back(p);
  return places;
}

std::vector<std::string> TensorReader::names() const {
  std::vector<std::string> all;
  for (auto &[name, places] : tensors)
    all.push_back(name);
  return all;
}

const File &TensorReader::file(size_t i) {
  if (!files[i])
    files[i] = std::make_unique<File>(checkpoint.folder + "/" + checkpoint.manifest.files[i].data);
  return *files[i];
}

void TensorReader::readFrom(const Place &p, int64_t first, int64_t count, int elem, char *out) {
  constexpr int64_t kElements = 1 << 18; // converted at a time
  const int64_t stored = elemBytes(p.run->elem);
  const File &from = file(p.file);
  if (p.run->elem == elem)
    return from.read(p.run->offset + first * stored, count * stored, out);
  for (int64_t at = 0; at < count; at += kElements) {
    const int64_t n = std::min(kElements, count - at);
    buffer.resize(n * stored);
    from.read(p.run->offset + (first + at) * stored, n * stored, buffer.data());
    convert(buffer.data(), p.run->elem, out + at * elemBytes(elem), elem, n);
  }
}

void TensorReader::read(const SavedRun &wanted, char *out) {
  int64_t found = 0;
  for (const Place &p : placesOf(wanted))
    forEachCommon(wanted.dims, p.run->run, wanted.run, [&](int64_t from, int64_t to, int64_t n) {
      readFrom(p, from, n, wanted.elem, out + to * elemBytes(wanted.elem));
      found += n;
    });
  if (found != wanted.run.count)
    fail("checkpoint '%s' has %lld of %lld elements of tensor '%s'", checkpoint.folder.c_str(), static_cast<long long>(found),
         static_cast<long long>(wanted.run.count), wanted.tensor.c_str());
}

} // namespace zccrt
