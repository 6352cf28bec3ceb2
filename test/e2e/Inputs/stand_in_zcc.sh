#!/bin/sh
# Stands for zcc where a script is tested that compiles: its programs write losses and times that are always the same, and export one number.
for a in "$@"; do [ "$a" = --plan=json ] && { echo '{"spaces": {"device": {"arena_bytes": 4194304}}, "predicted_step_s": 0.5, "launches": 7}'; exit 0; }; done
out= bundle= prev=
for a in "$@"; do [ "$prev" = -o ] && out=$a; [ "$a" = --bundle ] && bundle=1; prev=$a; done
[ -n "$bundle" ] && { mkdir -p "$out"; out=$out/$(basename "$out"); }
cat > "$out" <<'P'
#!/bin/sh
log=/dev/null export=/dev/null trace=/dev/null one='\200\077'
for a in "$@"; do case $a in --log=*) log=${a#--log=};; --steps=*) n=${a#--steps=};; --export=*) export=${a#--export=};; --trace=*) trace=${a#--trace=};; --lr=0) one='\0\0';; esac; done
cat > "$trace" <<T # two steps
{"traceEvents": [{"ph": "M", "tid": 64, "name": "thread_name", "args": {"name": "compute"}}, {"ph": "M", "tid": 0, "name": "thread_name", "args": {"name": "step"}},
{"ph": "X", "tid": 0, "name": "step 2", "cat": "step", "dur": 9, "args": {}}, {"ph": "X", "tid": 0, "name": "step 3", "cat": "step", "dur": 11, "args": {}},
{"ph": "X", "tid": 64, "name": "node_mul_1", "cat": "forward", "dur": 4.5, "args": {"op": "mul", "predicted_us": 4}},
{"ph": "X", "tid": 64, "name": "node_mul_22", "cat": "forward", "dur": 1.5, "args": {"op": "mul", "predicted_us": 4}}]}
T
i=0; : > "$log"; while [ $i -lt "$n" ]; do echo '{"loss": 5.5, "time_s": 0.25}' >> "$log"; i=$((i+1)); done
printf '\066\0\0\0\0\0\0\0{"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}\0\0'$one > "$export" # a tensor: the learning rate
P
chmod +x "$out"
