// Puts a page together. No text of the data can end the element that it is in.
#include "runtime/Page.h"
#include "page/PageText.h"

namespace zccrt {

static std::string replaced(const std::string &text, char c, const char *by) {
  std::string s;
  s.reserve(text.size() + text.size() / 8 + (1 << 20));
  for (char each : text)
    if (each == c)
      s += by;
    else
      s += each;
  return s;
}

std::string page(const std::string &title, const std::string &json, const char *script) {
  // In JSON '<' stands in strings alone.
  std::string s;
  s.reserve(json.size() + json.size() / 8 + (1 << 20));
  s += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
       "script-src 'unsafe-inline'\">\n"
       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
       replaced(replaced(title, '&', "&amp;"), '<', "&lt;") + "</title>\n<style>\n";
  s += kPageStyle;
  s += "</style>\n</head>\n<body>\n<svg id=\"seed\" width=\"0\" height=\"0\"></svg>\n<noscript>This page draws its charts with "
       "the "
       "script that it holds; scripts are switched off.</noscript>\n<script id=\"data\" type=\"application/json\">" +
       replaced(json, '<', "\\u003c") + "</script>\n<script>\n";
  return s.append(kPageCharts).append(script) + "</script>\n</body>\n</html>\n";
}

} // namespace zccrt
