// Reads and writes .npz archives with minizip.
#include "tools/Npz.h"
#include "ir/Diag.h"
#include "runtime/Elem.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/CheckedArithmetic.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include <minizip/unzip.h>
#include <minizip/zip.h>

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

static llvm::Expected<std::string> readMember(unzFile zip) {
  if (unzOpenCurrentFile(zip) != UNZ_OK)
    return error("cannot be opened");
  std::string data;
  std::vector<char> block(1 << 16);
  int n;
  while ((n = unzReadCurrentFile(zip, block.data(), block.size())) > 0)
    data.append(block.data(), n);
  if (unzCloseCurrentFile(zip) != UNZ_OK || n < 0)
    return error("is damaged");
  return data;
}

llvm::Expected<std::map<std::string, Array>> zcc::readNpz(StringRef path) {
  unzFile zip = unzOpen64(path.str().c_str());
  if (!zip)
    return error("cannot read '" + path + "' as .npz");
  auto close = llvm::make_scope_exit([&] { unzClose(zip); });
  std::map<std::string, Array> arrays;
  for (int s = unzGoToFirstFile(zip); s == UNZ_OK; s = unzGoToNextFile(zip)) {
    char name[1024] = {};
    unz_file_info64 info;
    if (unzGetCurrentFileInfo64(zip, &info, name, sizeof name - 1, nullptr, 0, nullptr, 0) != UNZ_OK)
      return error("'" + path + "' is damaged");
    StringRef key = name;
    key.consume_back(".npy");
    auto data = readMember(zip);
    auto array = data ? parseNpy(*data) : llvm::Expected<Array>(data.takeError());
    if (!array)
      return error("'" + path + "': array '" + key + "' " + llvm::toString(array.takeError()));
    arrays[key.str()] = std::move(*array);
  }
  return arrays;
}

llvm::Error zcc::writeNpz(StringRef path, const std::map<std::string, Array> &arrays) {
  auto temp = llvm::sys::fs::TempFile::create(path + ".%%%%%%");
  if (!temp)
    return error("cannot write '" + path + "': " + llvm::toString(temp.takeError()));
  zipFile zip = zipOpen64(temp->TmpName.c_str(), APPEND_STATUS_CREATE);
  bool good = zip != nullptr;
  for (auto &[name, a] : arrays) {
    std::string data = npyText(a);
    zip_fileinfo info = {};
    info.tmz_date = {0, 0, 0, 1, 0, 1980}; // the same bytes every time
    good = good && zipOpenNewFileInZip64(zip, (name + ".npy").c_str(), &info, nullptr, 0, nullptr, 0, nullptr, /*method=*/0, 0,
                                         data.size() >= UINT32_MAX) == ZIP_OK;
    for (size_t at = 0; good && at < data.size(); at += 1 << 30)
      good = zipWriteInFileInZip(zip, data.data() + at, std::min<size_t>(data.size() - at, 1 << 30)) == ZIP_OK;
    good = good && zipCloseFileInZip(zip) == ZIP_OK;
  }
  if (zip)
    good = zipClose(zip, nullptr) == ZIP_OK && good;
  if (good)
    return temp->keep(path);
  llvm::consumeError(temp->discard());
  return error("cannot write '" + path + "'");
}
