// Which notes there are, and whether one is as its row says.
#include "ir/Notes.h"
#include "ir/Verifier.h"

using namespace zcc;
using llvm::StringRef;

static constexpr NoteDef kNotes[] = {
#define ZCC_NOTE(NAME, OF, KIND, WRITER, READERS, SUMMARY) {NAME, NoteDef::OF, AttrKind::KIND, WRITER, READERS, SUMMARY},
#include "ir/Notes.def"
#undef ZCC_NOTE
};

llvm::ArrayRef<NoteDef> zcc::allNotes() { return kNotes; }

static bool matches(StringRef pattern, StringRef name) {
  auto [before, behind] = pattern.split('*');
  if (before.size() == pattern.size())
    return name == pattern;
  return name.size() > before.size() + behind.size() && name.starts_with(before) && name.ends_with(behind);
}

std::string zcc::checkNote(NoteDef::Of of, StringRef name, const Attr &value) {
  constexpr StringRef kOf[] = {"a node", "a global", "the module"};
  const NoteDef *elsewhere = nullptr;
  for (const NoteDef &d : kNotes) {
    if (!matches(d.name, name))
      continue;
    if (d.of == of)
      return fits(d.kind, value) ? "" : ("note '" + name + "' of " + kOf[of] + " is of kind '" + kindName(d.kind) + "'").str();
    elsewhere = &d;
  }
  if (elsewhere)
    return ("'" + name + "' is a note of " + kOf[elsewhere->of] + ", not of " + kOf[of]).str();
  return ("no pass knows a note '" + name + "' of " + kOf[of] + "; --help-passes lists what there is").str();
}
