// The passes that zcc runs, in order.
#include "passes/Pipeline.h"

using namespace zcc;

void zcc::buildPipeline(PassManager &pm, const Options &o) {
  if (!o.inference)
    pm.add("raise-precision");
  // Canonical forms first: softmax, norms and cross-entropy have shorter gradients than their
  // spelled-out forms.
  pm.add("fold-constants");
  pm.add("simplify");
  pm.add("thin-scans"); // while there are no scans but the model's, and no gradients of them
  pm.add("eliminate-dead");
  if (o.tiles())
    pm.add("choose-tiles"); // before a result that is not to be whole is returned
  if (o.labelledRows)
    pm.add("choose-labelled");
  pm.add("mask-rows"); // while every operator is still whole
  pm.add("expose-logits");
  if (o.labelledRows)
    pm.add("keep-labelled"); // before what is left becomes tiles
  if (o.tiles())
    pm.add("tile-operators");
  if (o.isLow()) {
    pm.add("lower-precision");
    pm.add("fold-constants"); // constants that have become 16 bit
  }
  if (o.tiles())
    pm.add("split-parameters"); // their masters with them
  pm.add("block-channels");     // before anything is computed twice
  pm.add("align-columns");
  pm.add("add-biases");
  if (!o.inference) {
    pm.add("differentiate");
    // Gradients bring sums over axes of 1, products with 0 and 1, and what no parameter needs.
    pm.add("fold-constants");
    pm.add("simplify");
    pm.add("eliminate-dead");
    if (o.tiles()) {
      pm.add("interleave-tiles");
      pm.add("recompute-activations"); // of tiles, in front of what else is
    }
    if (o.isLow())
      pm.add("save-narrow");
    if (o.checkpointActivations > 0)
      pm.add("choose-checkpoints");
  }
  if (o.seeksPlan())
    pm.add("choose-plan");
  buildBehindPlan(pm, o);
  if (!o.inference)
    pm.add("join-updates"); // of what is planned, where it takes no memory
}

void zcc::buildBehindPlan(PassManager &pm, const Options &o) {
  if (!o.inference) {
    if (o.checkpointActivations)
      pm.add("recompute-activations"); // before gathers: one serves what is recomputed and what else the backward reads
    if (o.ordersBlocks() || o.seeksOrder())
      pm.add("order-microbatches");
    pm.add("append-optimizer");
    if (o.ranks > 1) {
      pm.add("partition-states");
      pm.add("insert-gathers");
      pm.add("reduce-gradients");
      pm.add("bucket-collectives");
    }
    pm.add("eliminate-dead");
    pm.add("defer-updates");
  }
  pm.add("offload-states");
  pm.add("eliminate-dead");
  pm.add("expand-composites");
  pm.add("sink-casts");
  pm.add("lay-heads");           // before copies are put in for views
  pm.add("globalize-constants"); // before views of constants would be copied
  pm.add("legalize-operands");
  pm.add("fuse");
  pm.add("choose-ways"); // of nodes whose operands lie as they will
  pm.add("attach-epilogues");
  pm.add("order-neighbours"); // of nodes that will be; before what is started early has its place
  if (!o.inference && (o.away(o.offloadActivations) != Space::Device || o.seeks(o.offloadActivations)))
    pm.add("move-activations"); // what is really kept
  if (!o.inference && o.hasHost())
    pm.add("schedule-host"); // before the gathers of what it makes are started
  pm.add("pack-weights");    // of nodes as they stay; before what it packs is gathered early
  if (o.ranks > 1)
    pm.add("schedule-prefetch");
  pm.add("schedule-transfers");
  pm.add("plan-memory"); // last: it gives every value that is left its place
}
