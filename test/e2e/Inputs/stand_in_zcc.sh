#!/bin/sh
# Stands for zcc where a script is tested that compiles: its programs write losses and times that are always the same.
for a in "$@"; do [ "$a" = --plan=json ] && { echo '{"spaces": {"device": {"arena_bytes": 4194304}}, "predicted_step_s": 0.5, "launches": 7}'; exit 0; }; done
out= bundle= prev=
for a in "$@"; do [ "$prev" = -o ] && out=$a; [ "$a" = --bundle ] && bundle=1; prev=$a; done
[ -n "$bundle" ] && { mkdir -p "$out"; out=$out/$(basename "$out"); }
cat > "$out" <<'P'
#!/bin/sh
for a in "$@"; do case $a in --log=*) log=${a#--log=};; --steps=*) n=${a#--steps=};; esac; done
i=0; : > "$log"; while [ $i -lt "$n" ]; do echo '{"loss": 5.5, "time_s": 0.25}' >> "$log"; i=$((i+1)); done
P
chmod +x "$out"
