// Reads and writes .npz archives with libzip.
#include "tools/Npz.h"
#include "ir/Diag.h"
#include "runtime/Elem.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/CheckedArithmetic.h"
#include "llvm/Support/Endian.h"
#include <map>
#include <memory>
#include <zip.h>

using namespace zcc;
using llvm::StringRef;
using llvm::Twine;

// ---- .npy

/// What stands behind "'KEY':" in the header, which is a Python dictionary.
static StringRef field(StringRef header, StringRef key) {
  size_t at = header.find(("'" + key + "':").str());
  return at == StringRef::npos ? "" : header.substr(at + key.size() + 3).ltrim();
}

static llvm::Expected<Array> parseNpy(StringRef data) {
  if (!data.starts_with(StringRef("\x93NUMPY", 6)) || data.size() < 12)
    return error("is no .npy array");
  bool isLong = data[6] > 1; // format version 2 has a longer length field
  size_t start = isLong ? 12 : 10;
  uint64_t length = isLong ? llvm::support::endian::read32le(data.data() + 8) : llvm::support::endian::read16le(data.data() + 8);
  if (length > data.size() - start)
    return error("has a damaged header");
  StringRef header = data.substr(start, length);
  StringRef descr = field(header, "descr"), shape = field(header, "shape");
  Array a;
  StringRef type = descr.split(',').first;
  auto *elem = llvm::find_if(zccrt::kElems, [&](const zccrt::ElemDef &e) { return type.trim('\'') == e.descr; });
  if (elem == std::end(zccrt::kElems))
    return error("has the type " + type + ", which is not supported");
  a.type.elem = Elem(elem - zccrt::kElems);
  if (!field(header, "fortran_order").starts_with("False"))
    return error("is not in C order");
  if (!shape.consume_front("("))
    return error("has a damaged header");
  std::optional<int64_t> bytes = elemBytes(a.type.elem);
  for (shape = shape.ltrim(); !shape.starts_with(")"); shape = shape.ltrim(" ,")) {
    int64_t d;
    if (shape.consumeInteger(10, d) || d < 0)
      return error("has a damaged header");
    a.type.dims.push_back(d);
    bytes = bytes ? llvm::checkedMul(*bytes, d) : bytes;
  }
  StringRef body = data.substr(start + length);
  if (!bytes || uint64_t(*bytes) != body.size())
    return error("holds " + Twine(body.size()) + " bytes, which is not " + a.type.str());
  a.bytes = body.str();
  return a;
}

static std::string npyText(const Array &a) {
  std::string dict = "{'descr': '" + std::string(zccrt::kElems[int(a.type.elem)].descr) + "', 'fortran_order': False, 'shape': (";
  for (int64_t d : a.type.dims)
    dict += std::to_string(d) + ",";
  dict += "), }";
  constexpr size_t kPrefix = 10, kAlign = 64;
  dict.append((kAlign - (kPrefix + dict.size() + 1) % kAlign) % kAlign, ' ');
  dict += '\n';
  char length[2] = {char(dict.size() & 255), char(dict.size() >> 8)};
  return std::string("\x93NUMPY\x01\x00", 8) + std::string(length, 2) + dict + a.bytes;
}

// ---- .npz

static llvm::Expected<std::string> readMember(zip_t *zip, zip_uint64_t i) {
  std::unique_ptr<zip_file_t, void (*)(zip_file_t *)> file(zip_fopen_index(zip, i, 0), [](zip_file_t *f) { zip_fclose(f); });
  if (!file)
    return error("cannot be opened: " + Twine(zip_strerror(zip)));
  std::string data;
  std::vector<char> block(1 << 16);
  zip_int64_t n;
  while ((n = zip_fread(file.get(), block.data(), block.size())) > 0)
    data.append(block.data(), n);
  if (n < 0)
    return error("is damaged: " + Twine(zip_file_strerror(file.get())));
  return data;
}

llvm::Expected<std::map<std::string, Array>> zcc::readNpz(StringRef path) {
  zip_t *zip = zip_open(path.str().c_str(), ZIP_RDONLY, nullptr);
  if (!zip)
    return error("cannot read '" + path + "' as .npz");
  auto close = llvm::make_scope_exit([&] { zip_discard(zip); });
  std::map<std::string, Array> arrays;
  for (zip_int64_t i = 0; i < zip_get_num_entries(zip, 0); ++i) {
    const char *name = zip_get_name(zip, i, ZIP_FL_ENC_RAW);
    if (!name)
      return error("'" + path + "' is damaged");
    StringRef key = name;
    key.consume_back(".npy");
    auto data = readMember(zip, i);
    auto array = data ? parseNpy(*data) : llvm::Expected<Array>(data.takeError());
    if (!array)
      return error("'" + path + "': array '" + key + "' " + llvm::toString(array.takeError()));
    arrays[key.str()] = std::move(*array);
  }
  return arrays;
}

llvm::Error zcc::writeNpz(StringRef path, const std::map<std::string, Array> &arrays) {
  zip_t *zip = zip_open(path.str().c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  bool good = zip != nullptr;
  std::vector<std::string> texts;
  texts.reserve(arrays.size()); // libzip reads them when it closes
  for (auto &[name, a] : arrays) {
    const std::string &data = texts.emplace_back(npyText(a));
    zip_source_t *source = good ? zip_source_buffer(zip, data.data(), data.size(), /*freep=*/0) : nullptr;
    const zip_int64_t i = source ? zip_file_add(zip, (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8) : -1;
    constexpr int kFirstOfJanuary1980 = 1 << 5 | 1; // the same bytes every time
    good = i >= 0 && zip_set_file_compression(zip, i, ZIP_CM_STORE, 0) == 0 &&
           zip_file_set_dostime(zip, i, 0, kFirstOfJanuary1980, 0) == 0;
  }
  if (good && zip_close(zip) == 0)
    return llvm::Error::success();
  std::string why = zip ? zip_strerror(zip) : "";
  if (zip)
    zip_discard(zip);
  return error("cannot write '" + path + "'" + (why.empty() ? "" : ": " + why));
}
