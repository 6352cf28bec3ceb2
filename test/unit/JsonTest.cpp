// Strings of JSON, as others write them.
#include "runtime/Json.h"
#include "RuntimeTest.h"

namespace json_test {

using namespace zccrt;

namespace {

std::string read(const std::string &text) {
  JsonReader r(text, "it is no string");
  std::string s = r.string();
  r.end();
  return s;
}

TEST(Json, CharactersByNumber) {
  EXPECT_EQ(read(R"("gr\u00f6\u00dFe \u20ac \ud83d\ude00 \u0041")"), "gr\u00f6\u00dfe \u20ac \U0001f600 A");
  EXPECT_EQ(read(R"("\ud83d and \ude00")"), "\xed\xa0\xbd and \xed\xb8\x80"); // halves of none
  EXPECT_EQ(read(R"("\ud83d\u0041")"), "\xed\xa0\xbd"
                                       "A");
  for (const char *text : {R"("\u00f")", R"("\u00fg")", R"("\u+0f1")", R"("\ud83d\u12")", R"("\u)"})
    EXPECT_FAILURE(read(text), "it is no string");
}

TEST(Json, WhatIsWrittenIsReadBack) {
  for (const std::string &s : {std::string("a\tb\n\x1f\"\\/"), std::string("gr\u00f6\u00dfe"), std::string()})
    EXPECT_EQ(read(jsonString(s)), s);
}

} // namespace

} // namespace json_test
