// Finds the members of the archive, and the bytes of tensors in them.
#include "runtime/weights/TorchFile.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Npy.h"
#include "runtime/Options.h"
#include "runtime/Zip.h"
#include <algorithm>
#include <cstring>

namespace zccrt {

constexpr int64_t kMostPickle = 16 << 20; // bytes

/// Of a storage's class.
static int elemOf(const std::string &storage) {
  constexpr std::pair<const char *, int> kStorages[] = {
      {"FloatStorage", ZCCRT_F32}, {"DoubleStorage", ZCCRT_F64}, {"HalfStorage", ZCCRT_F16},  {"BFloat16Storage", ZCCRT_BF16},
      {"LongStorage", ZCCRT_I64},  {"IntStorage", ZCCRT_I32},    {"ShortStorage", ZCCRT_I16}, {"CharStorage", ZCCRT_I8},
      {"ByteStorage", ZCCRT_U8},   {"BoolStorage", ZCCRT_BOOL}};
  for (auto &[name, elem] : kStorages)
    if (storage == std::string("torch ") + name)
      return elem;
  return -1;
}

TorchFile::TorchFile(const std::string &path) : path(path), what("'" + path + "'") {
  readMembers();
  values = std::make_unique<Pickle>(text, what);
}

void TorchFile::readMembers() {
  const auto file = std::make_shared<File>(path);
  const std::shared_ptr<ZipArchive> archive = ZipArchive::open(file);
  if (!archive)
    fail("%s is no archive of torch.save (or one of before PyTorch 1.6: load and save it again), or it is cut short",
         what.c_str());
  std::string order = "little";
  bool hasPickle = false;
  for (int64_t i = 0; i < archive->count(); ++i) {
    const ZipArchive::Member m = archive->member(i);
    if (m.method != 0 || m.isEncrypted)
      fail("%s: its members are compressed or encrypted, which torch.save does not do", what.c_str());
    const std::string member = m.name.substr(m.name.find('/') + 1);
    if (member == "data.pkl" || member == "byteorder") {
      if (m.bytes > kMostPickle)
        fail("%s: its '%s' has %lld bytes", what.c_str(), member.c_str(), static_cast<long long>(m.bytes));
      std::string &to = member == "byteorder" ? order : text;
      to.resize(m.bytes);
      ZipArchive::Stream(*archive, m).read(to.data(), m.bytes);
      hasPickle |= member == "data.pkl";
    } else if (member.rfind("data/", 0) == 0) {
      storages[member.substr(5)] = {archive->dataOf(m), m.bytes};
    }
  }
  if (!hasPickle)
    fail("%s: damaged archive", what.c_str());
  if (order != "little")
    fail("%s was written on a machine of another byte order", what.c_str());
}

GivenTensor TorchFile::tensorOf(const std::string &name, const PickleValue &v) const {
  const Pickle &p = *values;
  const PickleValue &storage = p[v.items[0]];
  const std::string type = p[storage.items[0]].text;
  GivenTensor t;
  t.name = name;
  t.elem = elemOf(type);
  t.dtype = type.substr(type.find(' ') + 1);
  auto wrong = [&](const char *why) { fail("%s: tensor '%s' %s", what.c_str(), name.c_str(), why); };
  for (int list : {v.items[2], v.items[3]})
    if (p[list].items.size() > ZCCRT_MAX_DIMS)
      wrong("has more axes than zcc knows");
  t.dims = p.numbers(p[v.items[2]]);
  const std::vector<int64_t> strides = p.numbers(p[v.items[3]]);
  auto place = storages.find(storage.text);
  if (t.elem < 0)
    fail("%s: tensor '%s' has a %s, which zcc does not read", what.c_str(), name.c_str(), t.dtype.c_str());
  if (place == storages.end() || strides.size() != t.dims.size())
    wrong("has no data in the file");
  const int64_t size = elemBytes(t.elem);
  int64_t count = 1, last = 0; // of the storage's elements, the last that it has
  bool isInOrder = true;
  for (size_t i = t.dims.size(); i-- > 0;) {
    int64_t far;
    isInOrder &= t.dims[i] == 1 || strides[i] == count;
    if (t.dims[i] < 0 || strides[i] < 0 || __builtin_mul_overflow(count, t.dims[i], &count) ||
        __builtin_mul_overflow(std::max<int64_t>(t.dims[i] - 1, 0), strides[i], &far) || __builtin_add_overflow(last, far, &last))
      wrong("has a shape that is too large");
  }
  int64_t begin;
  if (__builtin_mul_overflow(p[v.items[1]].number, size, &begin) || begin < 0 || begin > place->second.bytes ||
      (count && last >= (place->second.bytes - begin) / size))
    wrong("lies beyond its data");
  t.offset = place->second.offset + begin;
  if (__builtin_mul_overflow(count, size, &t.bytes))
    wrong("has a shape that is too large");
  if (count && !isInOrder)
    t.strides = strides;
  return t;
}

std::vector<GivenTensor> TorchFile::tensorsOf(const PickleValue &dict) const {
  std::vector<GivenTensor> all;
  for (size_t i = 0; dict.kind == PickleValue::Dict && i + 1 < dict.items.size(); i += 2)
    if (const PickleValue &key = (*values)[dict.items[i]], &v = (*values)[dict.items[i + 1]];
        key.kind == PickleValue::String && v.kind == PickleValue::Tensor)
      all.push_back(tensorOf(key.text, v));
  return all;
}

std::vector<GivenTensor> TorchFile::stateDict(std::string *under) const {
  std::vector<GivenTensor> all = tensorsOf(values->root());
  for (const char *key : {"state_dict", "model_state_dict", "model", "module"})
    if (const PickleValue *dict = all.empty() ? values->find(values->root(), key) : nullptr) {
      all = tensorsOf(*dict);
      if (under)
        *under = key;
    }
  if (all.empty())
    fail("%s has no state_dict: neither a dict of tensors, nor one under 'state_dict', 'model_state_dict', 'model' or 'module'",
         what.c_str());
  return all;
}

GivenTensor TorchFile::onlyTensor() const {
  const PickleValue *param = values->find(values->root(), "param");
  const PickleValue &v = param ? *param : values->root();
  if (v.kind != PickleValue::Tensor)
    fail("%s is not one tensor", what.c_str());
  GivenTensor t = tensorOf("param", v);
  if (!t.strides.empty())
    fail("%s: its tensor is a view of another; save tensor.contiguous()", what.c_str());
  return t;
}

} // namespace zccrt
