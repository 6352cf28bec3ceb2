#!/bin/sh
# Runs the fuzzers on what the tests contain, each for so many seconds; what they find is in FOLDER. Runs add to the corpus there.
#   [STACK=KIB] test/fuzz/run.sh BUILD FOLDER SECONDS [onnx|zir|config]
# With STACK what recurses without a bound shows early: 512 is enough for all that is bounded, under the address sanitizer.
set -eu
build=$1 folder=$2 seconds=$3 which=${4:-onnx zir config}
test=$(cd "$(dirname "$0")/.." && pwd)
for kind in onnx zir config; do
  mkdir -p "$folder/seeds-$kind" "$folder/$kind" "$folder/found"
done
for f in "$test"/ir/*.zir "$test"/passes/*.zir "$test"/codegen/*.zir; do
  cp "$f" "$folder/seeds-zir/$(basename "$(dirname "$f")")-$(basename "$f")"
done
for f in "$test"/frontend/*.onnxtxt "$test"/fuzz/seeds/*.onnxtxt; do
  # Files that expect errors of the reader do not all encode.
  protoc --proto_path="$test/../frontend/onnx" --encode=zcc.onnx_pb.ModelProto onnx.proto < "$f" \
    > "$folder/seeds-onnx/$(basename "$f" .onnxtxt).onnx" 2>/dev/null || true
done
(cd "$folder/seeds-onnx" && python3 "$test/frontend/Inputs/functions.py" "$test/../frontend/onnx" && rm loops.onnx) # slow
# Large models are slow under sanitizers, and what mutations change in them is mostly weights.
find "$test/models" -name '*.onnx' -size -20k | while read -r f; do
  cp "$f" "$folder/seeds-onnx/$(basename "$(dirname "$f")")-$(basename "$f")"
done
cp "$test"/e2e/Inputs/*.json "$folder/seeds-config"
grep -oh 'R"({.*})"' "$test/unit/ConfigTest.cpp" | sed 's/^R"(//; s/)"$//' | awk -v to="$folder/seeds-config/unit-" '{ print > (to NR ".json") }'
# Words of the format: operators and attributes, of ONNX and of our own; keys.
grep -oh 'ZCC_OP([a-z0-9_]*)' "$test/../ir/Ops.def" | sed 's/ZCC_OP(\(.*[^_]\)_*)/"\1"/' > "$folder/zir.dict"
grep -oh '{"[a-z_]*", "[a-z]*"' "$test"/../ir/ops/*.cpp | sed 's/{\("[a-z_]*"\).*/\1/' | sort -u >> "$folder/zir.dict"
printf '"%s"\n' 'func @' 'body @' 'kernel @' 'param %' 'state %' 'const %' 'future<' '/2' '+2' '@host' 'hex' >> "$folder/zir.dict"
grep -oh '"[A-Z][A-Za-z0-9]*"' "$test"/../frontend/*/*.cpp | sort -u > "$folder/onnx.dict"
grep -oh '"[A-Za-z_]*"' "$test/../passes/options/ConfigKeys.def" | sort -u | grep -v '""' > "$folder/config.dict"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
[ -z "${STACK:-}" ] || ulimit -s "$STACK"
# Goes on after what it finds. Models that are expanded to the most that zcc takes are slow under sanitizers.
for kind in $which; do
  "$build/bin/fuzz-$kind" -fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -max_total_time="$seconds" -timeout=60 \
    -max_len=20000 -rss_limit_mb=6000 -dict="$folder/$kind.dict" -artifact_prefix="$folder/found/$kind-" \
    "$folder/$kind" "$folder/seeds-$kind"
done
found=$(find "$folder/found" -type f)
[ -z "$found" ] || { echo "found:"; echo "$found"; exit 1; }
