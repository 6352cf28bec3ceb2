#!/bin/sh
# Runs the fuzzers on what the tests contain, each for so many seconds; what they find is in FOLDER. Runs add to the corpus there.
#   test/fuzz/run.sh BUILD FOLDER SECONDS [onnx|zir]
set -eu
build=$1 folder=$2 seconds=$3 which=${4:-onnx zir}
test=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder/seeds-zir" "$folder/seeds-onnx" "$folder/zir" "$folder/onnx" "$folder/found"
for f in "$test"/ir/*.zir "$test"/passes/*.zir "$test"/codegen/*.zir; do
  cp "$f" "$folder/seeds-zir/$(basename "$(dirname "$f")")-$(basename "$f")"
done
for f in "$test"/frontend/*.onnxtxt; do
  # Files that expect errors of the reader do not all encode.
  protoc --proto_path="$test/../frontend/onnx" --encode=zcc.onnx_pb.ModelProto onnx.proto < "$f" \
    > "$folder/seeds-onnx/$(basename "$f" .onnxtxt).onnx" 2>/dev/null || true
done
# Large models are slow under sanitizers, and what mutations change in them is mostly weights.
find "$test/models" -name '*.onnx' -size -20k | while read -r f; do
  cp "$f" "$folder/seeds-onnx/$(basename "$(dirname "$f")")-$(basename "$f")"
done
# Words of the format: operators and attributes, of ONNX and of our own.
grep -oh 'ZCC_OP([a-z0-9_]*)' "$test/../ir/Ops.def" | sed 's/ZCC_OP(\(.*[^_]\)_*)/"\1"/' > "$folder/zir.dict"
grep -oh '{"[a-z_]*", "[a-z]*"' "$test"/../ir/ops/*.cpp | sed 's/{\("[a-z_]*"\).*/\1/' | sort -u >> "$folder/zir.dict"
printf '"%s"\n' 'func @' 'body @' 'kernel @' 'param %' 'state %' 'const %' 'future<' '/2' '+2' '@host' 'hex' >> "$folder/zir.dict"
grep -oh '"[A-Z][A-Za-z0-9]*"' "$test"/../frontend/*/*.cpp | sort -u > "$folder/onnx.dict"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
for kind in $which; do
  "$build/bin/fuzz-$kind" -max_total_time="$seconds" -timeout=60 -max_len=20000 -rss_limit_mb=6000 -dict="$folder/$kind.dict" \
    -artifact_prefix="$folder/found/$kind-" -print_final_stats=1 "$folder/$kind" "$folder/seeds-$kind"
done
