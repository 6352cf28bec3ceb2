#!/usr/bin/env python3
"""check_page.py CHROMIUM FILE.html [WIDTH]: opens a page in a browser without a network, moves over each chart, and prints what is
there: scripts' errors, references to elsewhere, whether the page is wider than the window, charts, and what the tooltips say."""
import json, os, re, subprocess, sys, tempfile

browser, path, width = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "1400"
text = open(path, encoding="utf-8").read()
WATCH = """<script>
window.problems = [];
addEventListener("error", e => problems.push(e.message));
addEventListener("securitypolicyviolation", e => problems.push("asks for " + e.blockedURI));
</script>"""
MOVE = """<script>
setTimeout(() => {
  const found = {charts: 0, hovered: [], empty: 0};
  document.querySelectorAll("svg[role=img]").forEach(s => {
    s.scrollIntoView({block: "center"});
    const r = s.getBoundingClientRect();
    let said = "";
    const places = [[.5, .5], [.3, .7], [.6, .3], [.5, .2], [.8, .45]];
    for (let i = 1; i < 400; ++i) places.push([(i % 20) / 20, Math.floor(i / 20) / 20]);
    for (const [x, y] of places) {
      if (said) break;
      const at = {clientX: r.left + r.width * x, clientY: r.top + r.height * y, bubbles: true, pointerType: "mouse"};
      (document.elementFromPoint(at.clientX, at.clientY) || s).dispatchEvent(new PointerEvent("pointermove", at));
      const tip = document.getElementById("tip");
      if (!tip.hidden) said = tip.innerText;
    }
    ++found.charts;
    found.empty += !s.querySelector("path, rect, circle");
    found.hovered.push([s.getAttribute("aria-label"), said]);
  });
  found.problems = problems;
  found.tooWide = document.documentElement.scrollWidth - innerWidth;
  found.title = document.title;
  document.body.append(Object.assign(document.createElement("pre"), {id: "found", textContent: JSON.stringify(found)}));
}, 300);
</script>"""
with tempfile.TemporaryDirectory() as folder:
    watched = os.path.join(folder, "page.html")
    with open(watched, "w", encoding="utf-8") as f:
        f.write(text.replace("<head>", "<head>" + WATCH, 1).replace("</body>", MOVE + "</body>"))
    done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", f"--window-size={width},1000",
                           "--virtual-time-budget=4000", "--dump-dom", "file://" + watched], capture_output=True, text=True)
dom = done.stdout
match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.S)
if not match:
    sys.exit(f"no answer from the page: {done.stderr[-2000:]}")
found = json.loads(match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
own = re.sub(r'<script id="data".*?</script>', "", text, flags=re.S)  # names may hold anything
print("errors:", *found["problems"] or ["none"])
print("elsewhere:", *re.findall(r"https?:\S*|\bsrc=\S*|\bhref=\S*|@import", own) or ["none"])
print("too wide by", max(0, found["tooWide"]))
print("title:", found["title"])
print("charts:", found["charts"], "empty:", found["empty"])
for name, said in found["hovered"]:
    print(f"hover {name}: {' | '.join(said.split(chr(10)))}")
