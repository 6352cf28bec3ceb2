// Reads the pickles of torch.save without running anything: tensors, containers, numbers, strings. Whatever else a pickle would
// have Python call or make is refused by name.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace zccrt {

struct PickleValue {
  enum Kind {
    None,
    Bool,
    Int,
    Float,
    String,
    List,    ///< or a tuple: items
    Dict,    ///< items: key, value, key, value
    Name,    ///< a class or function, as text: "torch FloatStorage"
    Storage, ///< text: its key; items: its type's Name
    Tensor,  ///< items: storage, offset (of elements), size, stride
  } kind = None;
  int64_t number = 0; ///< of Bool and Int
  double real = 0;
  std::string text;
  std::vector<int> items; ///< numbers of values
};

class Pickle {
public:
  /// Throws a Failure that begins with `what`.
  Pickle(const std::string &bytes, const std::string &what);

  const PickleValue &root() const { return values[rootNumber]; }
  const PickleValue &operator[](int number) const { return values[number]; }
  /// The value of a dict's key; nullptr: there is none, or it is no dict.
  const PickleValue *find(const PickleValue &dict, const std::string &key) const;
  /// The numbers of a list of whole numbers; a Failure if it is none.
  std::vector<int64_t> numbers(const PickleValue &list) const;

private:
  friend class PickleReader;
  std::deque<PickleValue> values; ///< what is made stays where it is
  int rootNumber = 0;
  std::string what;
};

} // namespace zccrt
