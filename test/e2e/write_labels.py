#!/usr/bin/env python3
"""Writes data.npz for Inputs/labelled.zir: three batches of 32 rows and a part of one, each with 5 to 8 labels."""
import random, struct, zipfile
from write_head import write

ROWS, BATCH = 3 * 32 + 11, 32
draw = random.Random(7)
labels = [-100] * ROWS
for begin in range(0, ROWS, BATCH):
    for row in draw.sample(range(begin, min(begin + BATCH, ROWS)), draw.randint(5, 8)):
        labels[row] = draw.randrange(300)
write("x.npy", "<f4", (ROWS, 16), struct.pack(f"<{ROWS * 16}f", *(draw.gauss(0, 1) for _ in range(ROWS * 16))))
write("t.npy", "<i8", (ROWS,), struct.pack(f"<{ROWS}q", *labels))
with zipfile.ZipFile("data.npz", "w") as z:
    z.write("x.npy")
    z.write("t.npy")
