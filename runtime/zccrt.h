/* zccrt: what an emitted program calls. C, no dependency on the compiler, small enough to read in
 * one go.
 *
 * A program is one zccrt_program record and the functions it names. libzccrt has main(): it reads
 * the options, maps the arena, loads each rank's weights, runs the step loop, logs, exports.
 *
 * The arena: one buffer per rank and memory space, offsets fixed at compile time, in bytes from its
 * start, each a multiple of 64.
 */
#ifndef ZCCRT_H
#define ZCCRT_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { ZCCRT_MAX_DIMS = 8, ZCCRT_ABI = 21 };

/* The order is that of zcc::Elem. */
typedef enum {
  ZCCRT_F32,
  ZCCRT_F64,
  ZCCRT_F16,
  ZCCRT_BF16,
  ZCCRT_I64,
  ZCCRT_I32,
  ZCCRT_I16,
  ZCCRT_I8,
  ZCCRT_U64,
  ZCCRT_U32,
  ZCCRT_U16,
  ZCCRT_U8,
  ZCCRT_BOOL
} zccrt_elem;

/* A tensor in the arena. Strides in elements; dense row-major unless the kernel's contract says
 * more. offset < 0: the operand was left out. */
typedef struct {
  int64_t offset; /* bytes, of element 0 */
  int32_t elem, ndim;
  int64_t dims[ZCCRT_MAX_DIMS];
  int64_t strides[ZCCRT_MAX_DIMS];
} zccrt_tensor;

/* An attribute of the IR, by name, ints or floats (a string is an int by the kernel's own table).
 */
typedef struct {
  const char *name;
  int32_t n;            /* how many values */
  const int64_t *ints;  /* or NULL */
  const double *floats; /* or NULL */
  const char *str;      /* or NULL */
} zccrt_attr;

/* One call of a library kernel: operands, then results. The emitter prints one constant per IR
 * line. */
typedef struct {
  const char *name; /* %name in .zir */
  const char *node; /* ONNX node, for messages */
  const zccrt_tensor *t;
  int32_t nin, nout;
  const zccrt_attr *attrs;
  int32_t nattrs;
  int64_t scratch; /* offset of the workspace in the arena, bytes; < 0: none */
  int64_t scratch_bytes;
  int32_t threads;
  void **cache; /* one slot per call: what prepare made (a primitive); freed by nobody */
} zccrt_call;

/* Runs a kernel. With arena == NULL it only prepares: makes primitives, allocates what the step
 * must not. */
typedef void (*zccrt_kernel)(char *arena, const zccrt_call *c);
/* Bytes of scratch the call needs, called by the compiler (offsets are not set). */
typedef int64_t (*zccrt_workspace)(const zccrt_call *c);
/* One record per library kernel: CPU table in cpu/Kernels.def, looked up by OpDef::kernel. */
typedef struct zccrt_kernel_def {
  const char *name;
  zccrt_kernel run;
  zccrt_workspace workspace; /* NULL: needs none */
  int32_t strided;           /* bit i: tensor i (operands, then results) may have any strides */
} zccrt_kernel_def;
extern const zccrt_kernel_def zccrt_cpu_kernels[];
extern const int zccrt_cpu_kernel_count;
extern const zccrt_kernel_def zccrt_cuda_kernels[]; /* they queue their work: runtime/cuda */
extern const int zccrt_cuda_kernel_count;
void *zccrt_cuda_device(void);     /* zccrt_program::device of a GPU */
void *zccrt_emulated_device(void); /* of an emulated one */

/* Ends the job with exit status 1: one message with the rank, the step and the ONNX node (NULL or
 * "": none). */
__attribute__((noreturn, format(printf, 2, 3))) void zccrt_fail(const char *node, const char *format, ...);

/* ---- collectives of one tensor or of a bucket of n: started and waited, in the program's order;
 * each blocks or not as Comm decides. No buffer is touched between start and wait. out may be in
 * itself (or, of a gather, in may be this rank's piece of out), else they do not overlap. 0 <= slot
 * < zccrt_program.slots; a wait for what has been waited for returns at once. A tensor of count elements lies on the ranks in
 * pieces of ceil(count / ranks), the last ones shorter or empty; a piece's buffer has room for that
 * many, and what a reduce_scatter does not fill there it sets to zero. Sums are taken in rank
 * order, rank 0 + rank 1 + ..., bf16 and f16 in f32; mean != 0 divides the sum by the number of
 * ranks before it is rounded. With one rank a sum or a gather is a copy. */
typedef struct {
  int64_t in, out; /* offsets in the arena, bytes */
  int64_t count;   /* elements of the whole tensor */
} zccrt_part;
/* in[count] -> out[count] */
void zccrt_all_reduce_start(char *arena, int slot, const zccrt_part *parts, int n, int elem, int mean);
/* in[piece] -> out[count] */
void zccrt_all_gather_start(char *arena, int slot, const zccrt_part *parts, int n, int elem);
/* in[count] -> out[piece] */
void zccrt_reduce_scatter_start(char *arena, int slot, const zccrt_part *parts, int n, int elem, int mean);
void zccrt_wait(int slot);
/* out[piece] = this rank's piece of in[count], zero beyond its end. */
void zccrt_shard(char *arena, const zccrt_part *part, int elem);

/* ---- transfers between memory spaces: started and waited like collectives; each engine (copies to and from the host, the disk)
 * takes them in the order of their starts. To or from @nvme, offsets and bytes are whole blocks of 4096. No buffer is touched
 * between start and wait. 0 <= slot < zccrt_program.transfer_slots. */
typedef struct {
  int32_t from_space, to_space; /* 0 device, 1 host, 2 nvme */
  int64_t from, to;             /* offsets in their arenas, bytes */
  int64_t bytes;
  const char *name; /* of what is moved, for messages */
} zccrt_move;
void zccrt_transfer_start(int slot, const zccrt_move *moves, int n);
void zccrt_transfer_wait(int slot);

/* ---- programs on a device, whose arena is its memory: queued behind the kernels */
void zccrt_device_copy(char *to, const char *from, int64_t bytes);
/* Waits for the kernels and reads a truth value. */
int zccrt_device_flag(const char *at);

/* ---- compute in host memory: started and waited like transfers; a thread of its own, with threads of its own, takes it in the
 * order of the starts, beside what computes on the device. No buffer that it writes is touched between start and wait, none that
 * it reads is written. 0 <= slot < zccrt_program.host_slots. */
void zccrt_host_start(int slot, void (*work)(char *host_arena));
void zccrt_host_wait(int slot);

/* What comes writes the globals zccrt_program.written[0 .. n]: waits until a checkpoint that is being saved has read them. */
void zccrt_will_write(int n);

/* Whether a call of @micro begins with updates that the step before it has left; otherwise it leaves out what only they need. */
extern int zccrt_late;
/* Whether a call of @micro is the first one of its step. */
extern int zccrt_first;

/* What @micro, @update and @eval consist of, as a trace shows it. */
typedef struct {
  const char *name;   /* %name in .zir; "": it has no result */
  const char *node;   /* ONNX node; "": none */
  const char *op;     /* what is done, started or waited for */
  const char *phase;  /* "forward", "backward", "update" */
  double predicted_s; /* how long it takes, the transfer or the collective that is started, or the waiting */
} zccrt_node;
/* The program has come to zccrt_program.nodes[n]. */
void zccrt_at(int n);

/* ---- the program record */

typedef enum {
  ZCCRT_INIT_ZERO,
  ZCCRT_INIT_SPLAT,
  ZCCRT_INIT_FILE,
  ZCCRT_INIT_UNIFORM,
  ZCCRT_INIT_NORMAL,
  ZCCRT_INIT_COPY,
  ZCCRT_INIT_BOX
} zccrt_init;

enum { ZCCRT_PARAM, ZCCRT_STATE, ZCCRT_CONST, ZCCRT_WHOLE };

/* What --tokens puts into an integer input of shape [.., T]. AUTO goes by the name: "label" or
 * "target" in it, or an `ignore` value, means NEXT, else IDS. SAME is for a model that shifts its
 * labels itself. */
typedef enum { ZCCRT_TOKENS_AUTO, ZCCRT_TOKENS_IDS, ZCCRT_TOKENS_NEXT, ZCCRT_TOKENS_SAME, ZCCRT_TOKENS_NONE } zccrt_tokens;

/* How checkpoints hold a global: bits. */
enum {
  ZCCRT_SAVED_OWN = 1,      /* every rank has values of its own (running statistics of its batches) */
  ZCCRT_SAVED_IF_THERE = 2, /* a checkpoint may lack it: it starts as in a new run (the loss scale) */
  ZCCRT_SAVED_CAST = 4      /* not written: it is another one, which is, in a narrower element (the parameter of a master) */
};

/* Where a global lies and how it starts. A tensor of boxes is a global that lies nowhere: of each element the box that has it
 * lies somewhere, and starts as the tensor says; files, exports and checkpoints have the tensor. */
typedef struct {
  const char *name;      /* %name in .zir */
  const char *onnx_name; /* initializer's name in the model; "" if it is not exported */
  zccrt_tensor t;        /* whole tensor's dims; offset of this rank's piece */
  int32_t shards;        /* 1: whole on every rank */
  int32_t space;         /* 0 device, 1 host, 2 nvme */
  zccrt_init init;
  double a, b;  /* splat a; uniform [a,b); normal mean a, deviation b */
  int32_t file; /* index into files; -1: OUT.weights */
  int64_t file_offset, file_bytes;
  int32_t transposed;  /* the file holds it with its last two axes swapped */
  int32_t file_elem;   /* the file's element; floats are converted to t.elem */
  int32_t export_elem; /* the element that exports write */
  int32_t copy_of;     /* index into globals; at the same offset: another name of that one (tied); of a box: its tensor */
  const char *draw_as; /* random numbers are drawn by this name; NULL: by its own */
  int32_t role;        /* ZCCRT_PARAM, ...; WHOLE: a tensor of boxes */
  int32_t trained;
  uint64_t hash;                 /* of the file's bytes of this tensor, by Hash.h; 0: not checked */
  const char *saved;             /* the tensor's name in checkpoints; NULL: it is not in them */
  int32_t saved_flags;           /* ZCCRT_SAVED_... */
  int64_t start[ZCCRT_MAX_DIMS]; /* of a box: where it begins in its tensor */
} zccrt_global;

typedef struct {
  const char *name; /* name in the model, for --data and --outputs */
  zccrt_tensor t;
  int64_t lo, hi;   /* integers (labels, token ids) must lie in [lo, hi); lo >= hi: any */
  int64_t ignore;   /* allowed besides, INT64_MIN: none */
  const char *node; /* the ONNX node that sets the range, for the message */
  zccrt_tokens tokens;
  int32_t by_rows; /* of an output: row b is of row b of the inputs alone */
  int64_t most;    /* elements of a batch that may be others than `ignore`; 0: all */
} zccrt_io;

/* A metric, shown beside the loss: a mean over what counts. Arena offsets of f32[]: of @micro (of several micro-batches one
 * behind the other, as with the loss) and of @eval the sum and what it is divided by; without the latter (-1) a mean over the
 * batch; with neither it is of the loss. */
typedef struct {
  const char *name;
  int32_t exponential; /* e to the mean is shown */
  int64_t micro, micro_weight, eval, eval_weight;
} zccrt_metric;

/* The exported ONNX file is the concatenation of these: literal bytes, then the bytes of a global
 * (-1: none). */
typedef struct {
  const char *bytes;
  int64_t nbytes;
  int32_t global;
  int32_t transposed; /* write it with its last two axes swapped */
} zccrt_piece;

/* The fields of the graph in the exported ONNX file: kept always; where a kept one needs it (an input has a name besides);
 * where the one it needs is kept; never. */
typedef enum { ZCCRT_FIELD_ALWAYS, ZCCRT_FIELD_NEEDED, ZCCRT_FIELD_INPUT, ZCCRT_FIELD_ABOUT, ZCCRT_FIELD_NEVER } zccrt_field_kind;
/* What of that file computes which value, in varints (7 bits a byte, the least first):
 *   the file's bytes in front of the graph, those of the graph's tag and length
 *   number of fields; each: its bytes, its kind, number of fields it needs, those; an input's name
 *   number of types; each: bytes, a TypeProto
 *   number of values; each: its node's field, its value_info's + 1 (0: none), its type, its name
 *   number of other names, of nodes and modules; each: the value it stands for, the name
 *   what "auto" stands for + 1, or 0; bytes, why there is none
 * A name: 0, bytes, the text; or where it stands in the file, from its field's begin, + 1, and its bytes. */

/* A tensor of the exported safetensors file: its shape there; the type is the global's, if its data is a global's. */
typedef struct {
  const char *name;
  int32_t another; /* a further name of a tensor before: left out with --export-ties=first */
  zccrt_tensor t;
  zccrt_piece data;
} zccrt_weight;

/* A parameter of a schedule: its name and value in DeepSpeed's configuration. */
typedef struct {
  const char *name, *value;
} zccrt_setting;

typedef struct {
  int32_t abi;
  const char *model;        /* "gpt2" */
  const char *optimizer;    /* "adamw"; NULL: none of zcc's */
  const char *compile_line; /* the zcc command without --ranks, for "recompile with" */
  uint64_t hash;            /* of program and configuration: equal on all ranks */
  const char *isa;          /* space-separated cpuid names the code needs: "avx2 fma avx512f" */
  int32_t ranks, threads, grad_accum, zero;
  int32_t batches_per_call; /* micro-batches that micro_fn takes, one behind the other, as it does their losses */
  int64_t arena_bytes[3];   /* device, host, nvme */
  int64_t persistent_bytes; /* of the device's, at its begin: what lies behind them is free where no function runs */
  int64_t host_budget;      /* bytes of a rank in memory of the host, by --memory and --host-memory; 0: as many as there are */
  int64_t library_bytes;    /* of the host, besides the arenas */
  int64_t device_library_bytes; /* of a device: the end of its arena, which libraries use */
  const zccrt_global *globals;
  int32_t nglobals;
  const int32_t *written; /* indices of the saved globals that a step writes, in the order of its first writes */
  int32_t nwritten;
  int64_t save_bytes; /* memory through which a checkpoint is saved, planned besides the arenas; 0: nothing is saved */
  const char *const *files;
  int32_t nfiles;        /* relative to the program's folder, or absolute */
  int64_t weights_bytes; /* size of OUT.weights; 0: there is none */
  const zccrt_io *inputs;
  int32_t ninputs;
  const zccrt_io *outputs;
  int32_t noutputs; /* of @eval: the loss first if has_loss */
  int32_t has_loss;
  int32_t batch;                   /* rows of a batch, where the first `rows` of them can be evaluated alone; 0: they cannot */
  int64_t rows;                    /* arena offset, i64; -1: the program has no loss */
  const char *batch_why;           /* why batch is 0 */
  const zccrt_io *tokens, *logits; /* of a token model: an input, and the output with a row of scores for each; or NULL */
  const char *generate_why;        /* why there are no logits */
  const zccrt_io *weight;          /* the output by which the losses of batches are weighted; NULL: by their rows */
  double weight_floor;             /* the loss is divided by at least so much; 0: by the weight */
  const zccrt_metric *metrics;
  int32_t nmetrics;
  int32_t loss_elem;                               /* its type in @micro: any float */
  int64_t loss;                                    /* arena offset of @micro's loss, -1: none. Likewise: */
  int64_t late;                                    /* i64: zccrt_late; -1: no step leaves updates */
  int64_t step, micro, seed, lr, grad_norm, beta1; /* i64, i64, i64, f32, f32, f32 */
  int64_t loss_scale, overflow, skipped;           /* f32; i64: 1 this step is skipped, 2 and at the least scale; i64: steps
                                                      skipped so far */
  int64_t grad_squares;                            /* f32[ngradients]: squared norms, not finite where a gradient is not */
  const char *const *gradients;                    /* their parameters' names in the model */
  int32_t ngradients;
  double base_lr;
  const zccrt_piece *onnx;
  int32_t npieces;        /* --export=.onnx in inference form */
  const char *onnx_index; /* which of its bytes compute which value (--outputs-of); NULL: not known */
  const zccrt_piece *onnx_train;
  int32_t npieces_train;       /* --export-form=train */
  const zccrt_weight *weights; /* --export=.safetensors */
  int32_t nweights;
  const char *absent;   /* what of the model's state_dict they lack; NULL: nothing */
  const char *schedule; /* default of --lr-schedule */
  const zccrt_setting *schedule_params;
  int32_t nschedule_params;
  const char *nvme_path;         /* default of --nvme-path; NULL: none */
  void (*prepare)(void);         /* calls every library kernel with arena NULL */
  void (*micro_fn)(char *arena); /* forward and backward; NULL: inference only */
  void (*update)(char *arena);   /* NULL: part of micro_fn */
  void (*flush)(char *arena);    /* the updates that the last step has left; NULL: it leaves none */
  void (*eval)(char *arena);
  const char *plan_json;  /* what zcc --plan=json prints, less the schedule */
  int32_t slots;          /* collectives that may be under way at once */
  int32_t most_parts;     /* tensors of the largest bucket */
  int32_t transfer_slots; /* transfers that may be under way at once */
  int32_t most_moves;     /* tensors of the largest of them */
  int32_t host_slots;     /* pieces of work in host memory that may be under way at once; 0: nothing computes there */
  const zccrt_node *nodes;
  int32_t nnodes;
  void *(*device)(void); /* makes what the arena lies on, a zccrt::Device; NULL: the host */
  const char *no_graph;  /* why that is not given a step's launches as graphs; NULL: it is */
  int64_t staging_bytes; /* pinned memory of the host through which its collectives go where they are staged; 0: it has none */
  int32_t tf32;          /* whether it may round the factors of f32 products to TF32 */
} zccrt_program;

extern const zccrt_program zccrt_the_program; /* defined by the emitted source */

#ifdef __cplusplus
}
#endif
#endif
